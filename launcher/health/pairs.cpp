#include "launcher/health/pairs.hpp"

#include <algorithm>
#include <set>

#include "src/base/as_size.hpp"

namespace holdfast::launcher {
namespace {

/// The value below which `part` of the values lie; 0 if there are none.
double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at = std::min(values.size() - 1, as_size(part * static_cast<double>(values.size())));
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(at);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool has(const Pair& pair, int node) { return pair.first == node || pair.second == node; }

Pair ordered(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

}  // namespace

std::vector<Round> tournament(int nodes) {
  std::vector<Round> rounds;
  if (nodes < 2) return rounds;
  const int seats = nodes + nodes % 2;  // an odd number has an empty seat
  for (int round = 0; round + 1 < seats; ++round) {
    // The last seat stays, the others rotate by one each round.
    const auto who = [&](int seat) { return seat == seats - 1 ? seat : (seat + round) % (seats - 1); };
    Round pairs;
    for (int i = 0; i < seats / 2; ++i) {
      const int a = who(i), b = who(seats - 1 - i);
      if (a < nodes && b < nodes) pairs.push_back(ordered(a, b));
    }
    rounds.push_back(std::move(pairs));
  }
  return rounds;
}

PairFindings judge_pairs(int nodes, const std::vector<PairResult>& results, const PairLimits& limits) {
  PairFindings findings;
  std::vector<double> rates, latencies;
  for (const auto& result : results) {
    if (result.bytes_s > 0) rates.push_back(result.bytes_s);
    if (result.latency_s > 0) latencies.push_back(result.latency_s);
  }
  findings.median_bytes_s = quantile(rates, 0.5);
  findings.median_latency_s = quantile(latencies, 0.5);
  // Among few nodes a bad one slows half of all pairs: the upper quartile is the norm.
  const double ordinary = quantile(rates, 0.75);
  const double late = std::max(limits.latency_floor_s, limits.late * quantile(latencies, 0.25));
  for (const auto& result : results)
    if (result.bytes_s <= 0 || result.bytes_s < limits.slow * ordinary || result.latency_s > late)
      findings.slow.push_back(result.pair);

  findings.unexplained = findings.slow;
  const std::set<Pair> slow(findings.slow.begin(), findings.slow.end());
  for (;;) {
    int worst = -1, max_slow = 0;
    double worst_part = 0;
    for (int node = 0; node < nodes; ++node) {
      const auto suspected = [&](const Pair& pair) {
        return std::any_of(findings.suspects.begin(), findings.suspects.end(),
                           [&](int s) { return has(pair, s); });
      };
      int all = 0, bad = 0;
      for (const auto& result : results)
        if (has(result.pair, node) && !suspected(result.pair)) {
          ++all;
          bad += slow.contains(result.pair);
        }
      if (bad < 2 || 2 * bad <= all) continue;
      const double part = static_cast<double>(bad) / all;
      if (bad > max_slow || (bad == max_slow && part > worst_part)) {
        worst = node;
        max_slow = bad;
        worst_part = part;
      }
    }
    if (worst < 0) break;
    findings.suspects.push_back(worst);
    std::erase_if(findings.unexplained, [&](const Pair& pair) { return has(pair, worst); });
  }
  std::sort(findings.suspects.begin(), findings.suspects.end());
  return findings;
}

Round regroup(int nodes, const std::vector<PairResult>& results, const PairLimits& limits) {
  const auto findings = judge_pairs(nodes, results, limits);
  std::set<Pair> met;
  for (const auto& result : results) met.insert(result.pair);
  std::vector<bool> doubtful(nodes), busy(nodes);
  for (const auto& pair : findings.slow) doubtful[pair.first] = doubtful[pair.second] = true;
  Round round;
  for (const auto& pair : findings.unexplained)
    for (const int node : {pair.first, pair.second}) {
      if (busy[node]) continue;
      for (int other = 0; other < nodes; ++other) {
        if (other == node || doubtful[other] || busy[other] || met.contains(ordered(node, other))) continue;
        busy[node] = busy[other] = true;
        round.push_back(ordered(node, other));
        break;
      }
    }
  return round;
}

}  // namespace holdfast::launcher
