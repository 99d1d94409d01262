// The report of the network check: findings, a table, JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/health/check_input.hpp"
#include "launcher/health/pair_rounds.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
constexpr int schema_version = 1;
constexpr std::size_t max_named = 8;  ///< of slow pairs in one finding

std::string pair_text(const NetworkResult& result, const Pair& pair) {
  return result.nodes[pair.first] + "-" + result.nodes[pair.second];
}

std::string list_text(const NetworkResult& result, const std::vector<Pair>& pairs) {
  std::string text;
  for (std::size_t i = 0; i < pairs.size() && i < max_named; ++i)
    text += (i == 0 ? "" : ", ") + pair_text(result, pairs[i]);
  if (pairs.size() > max_named) text += fmt::format(" and {} more", pairs.size() - max_named);
  return text;
}

/// In all rounds in which the pair was measured.
bool carried_nothing(const NetworkResult& result, const Pair& pair) {
  return std::none_of(result.pairs.begin(), result.pairs.end(),
                      [&](const auto& p) { return p.pair == pair && p.bytes_s > 0; });
}

}  // namespace

std::vector<Finding> network_findings(const NetworkResult& result) {
  std::vector<Finding> out;
  const auto& findings = result.findings;
  if (!result.absent.empty())
    out.push_back({"network.join", Fitness::critical, slurm::compress(result.absent) + " did not connect",
                   "Does the node answer, and does it see this folder?"});
  for (const int node : findings.suspects)
    out.push_back({"network.node", Fitness::critical,
                   result.nodes[node] + " is slow or cut off with most of its partners",
                   "Exclude it (--exclude) and check its links"});
  std::vector<Pair> dead, slow;
  for (const Pair& pair : findings.unexplained) (carried_nothing(result, pair) ? dead : slow).push_back(pair);
  const char* advice = "The route between them, or one of the two: run it again with more --rounds";
  if (!dead.empty())
    out.push_back({"network.cut", Fitness::critical, list_text(result, dead) + " cut off", advice});
  if (!slow.empty())
    out.push_back({"network.pair", Fitness::warning, list_text(result, slow) + " slow", advice});
  if (result.pairs.empty())
    out.push_back({"network.pairs", Fitness::unknown, "no pair of nodes to measure", ""});
  else if (findings.slow.empty())
    out.push_back(
        {"network.pairs", Fitness::ok,
         fmt::format("{} pairs in {} rounds, median {}/s and {:.0f} us", result.pairs.size(), result.rounds,
                     size_text(findings.median_bytes_s), findings.median_latency_s * 1e6),
         ""});
  return out;
}

std::string network_text(const NetworkResult& result) {
  auto pairs = result.pairs;
  std::sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.bytes_s < b.bytes_s; });
  std::string text = fmt::format("{:<32}  {:>12}  {:>11}\n", "pair", "rate", "round trip");
  for (const auto& pair : pairs)
    text += pair.bytes_s > 0 ? fmt::format("{:<32}  {:>10}/s  {:>8.0f} us\n", pair_text(result, pair.pair),
                                           size_text(pair.bytes_s), pair.latency_s * 1e6)
                             : fmt::format("{:<32}  none ({})\n", pair_text(result, pair.pair), pair.why);
  return text;
}

nlohmann::json network_json(const NetworkResult& result) {
  const auto name = [&](int node) { return result.nodes[node]; };
  nlohmann::json pairs = nlohmann::json::array(), suspects = nlohmann::json::array();
  for (const auto& pair : result.pairs)
    pairs.push_back({{"nodes", {name(pair.pair.first), name(pair.pair.second)}},
                     {"bytes_s", pair.bytes_s},
                     {"latency_s", pair.latency_s},
                     {"why", pair.why}});
  for (const int node : result.findings.suspects) suspects.push_back(name(node));
  const auto findings = network_findings(result);
  const auto health = health_of(findings, "");
  nlohmann::json list = nlohmann::json::array();
  for (const auto& finding : findings) list.push_back(to_json(finding));
  return {{"schema_version", schema_version},
          {"fitness", name_of(health.fitness)},
          {"why", health.why},
          {"findings", std::move(list)},
          {"nodes", result.nodes},
          {"absent", result.absent},
          {"suspects", std::move(suspects)},
          {"rounds", result.rounds},
          {"median_bytes_s", result.findings.median_bytes_s},
          {"median_latency_s", result.findings.median_latency_s},
          {"pairs", std::move(pairs)}};
}

}  // namespace holdfast::launcher
