#include "launcher/supervise/spare_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace holdfast::launcher {
namespace {

using control::NodeHealth;
using Fitness = NodeHealth::Fitness;

// The ranks of all nodes wait for the first checks. These take a part of a second; a driver that wakes its
// GPUs first takes some.
constexpr double first_checks_s = 5;

bool holds(const std::vector<int>& placement, int node) {
  return std::find(placement.begin(), placement.end(), node) != placement.end();
}

bool bad(Fitness fitness) { return fitness == Fitness::critical || fitness == Fitness::warning; }

}  // namespace

NodeHealth own_health(const NodeHealth& found, const SharedFindings& shared) {
  if (std::none_of(found.findings.begin(), found.findings.end(),
                   [&](const NodeHealth::Finding& f) { return shared.contains(f.check); }))
    return found;
  NodeHealth own = found;
  std::erase_if(own.findings, [&](const NodeHealth::Finding& f) { return shared.contains(f.check); });
  own.fitness = Fitness::ok;
  own.why.clear();
  for (const Fitness fitness : {Fitness::critical, Fitness::warning})
    for (const auto& finding : own.findings)
      if (finding.fitness == fitness && (own.fitness == Fitness::ok || own.fitness == fitness)) {
        own.fitness = fitness;
        own.why += fmt::format("{}{}: {}", own.why.empty() ? "" : "; ", finding.check, finding.says);
      }
  return own;
}

std::optional<std::string> fault_of_node(const NodeHealth& found) {
  static constexpr std::array<std::string_view, 2> filled_by_anybody = {"memory.shm", "disk.space"};
  for (const auto& finding : found.findings)
    if (finding.fitness == Fitness::critical &&
        std::ranges::find(filled_by_anybody, finding.check) == filled_by_anybody.end())
      return fmt::format("{}: {}", finding.check, finding.says);
  return std::nullopt;
}

SpareChecks::SpareChecks(std::size_t nodes, int every_s, bool first, double now)
    : nodes_(nodes), every_s_(every_s), next_(first ? now + every_s : now) {}

void SpareChecks::take(int n, const NodeHealth& what) {
  Node& node = nodes_[n];
  const std::string numerics = what.numerics.empty() ? node.newest.numerics : what.numerics;
  if (!node.answered || what.fitness != Fitness::unknown) node.newest = what;
  node.newest.numerics = numerics;
  node.answered = true;
}

void SpareChecks::known(int node, const NodeHealth& what) {
  take(node, what);
  nodes_[node].told = what;
}

bool SpareChecks::ask_first(int node) { return every_s_ > 0 && !std::exchange(nodes_[node].asked, true); }

bool SpareChecks::awaits_first(const std::vector<bool>& heard_now, double now) {
  if (awaited_since_ < 0) awaited_since_ = now;
  if (now - awaited_since_ >= first_checks_s) return false;
  for (std::size_t n = 0; n < nodes_.size(); ++n)
    if (nodes_[n].asked && !nodes_[n].answered && heard_now[n]) return true;
  return false;
}

std::vector<events::FindingShared> SpareChecks::news_of_all(const Roster& roster,
                                                            const std::set<std::string>& lost,
                                                            const SharedFindings& shared) const {
  std::map<std::string, events::FindingShared> found;
  int all = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (lost.contains(roster.nodes[n].name)) continue;
    ++all;
    for (const auto& finding : nodes_[n].newest.findings) {
      auto& same = found[finding.check];
      if (same.nodes++ == 0 || finding.fitness == Fitness::critical) same.fitness = name_of(finding.fitness);
      if (same.evidence.empty()) same.evidence = fmt::format("{}: {}", roster.nodes[n].name, finding.says);
    }
  }
  std::vector<events::FindingShared> out;
  for (auto& [check, same] : found) {
    if (2 * same.nodes <= all || shared.contains(check)) continue;
    same.check = check;
    same.of = all;
    out.push_back(std::move(same));
  }
  return out;
}

std::optional<NodeHealth> SpareChecks::news_of(int n, bool placed, const SharedFindings& shared) {
  Node& node = nodes_[n];
  const NodeHealth own = newest(n, shared);
  const bool news = node.told ? own.fitness != node.told->fitness || own.numerics != node.told->numerics
                    : placed  ? bad(own.fitness) || !own.numerics.empty()
                              : own.fitness != Fitness::unknown;
  if (!news) return std::nullopt;
  node.told = own;
  return own;
}

std::vector<NodeView> SpareChecks::views(const std::vector<int>& placement,
                                         const std::vector<bool>& heard_now,
                                         const SharedFindings& shared) const {
  const int count = static_cast<int>(nodes_.size());
  std::map<std::string, int> votes;
  int all_votes = 0;
  for (int n = 0; n < count; ++n) {
    const auto& hash = nodes_[n].newest.numerics;
    if (hash.empty()) continue;
    const int weight = holds(placement, n) ? 1 + count : 1;
    votes[hash] += weight;
    all_votes += weight;
  }
  const auto most = std::max_element(votes.begin(), votes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool known = numerics_placed(placement) || (most != votes.end() && 2 * most->second > all_votes);
  std::vector<NodeView> out;
  for (int n = 0; n < count; ++n) {
    const NodeHealth health = newest(n, shared);
    const bool agrees = !known || health.numerics.empty() || health.numerics == most->first;
    out.push_back({health.fitness, agrees, heard_now[n]});
  }
  return out;
}

/// Has a node with a slot reported its numerics probe?
bool SpareChecks::numerics_placed(const std::vector<int>& placement) const {
  return std::any_of(placement.begin(), placement.end(),
                     [this](int n) { return !nodes_[n].newest.numerics.empty(); });
}

std::vector<int> SpareChecks::begin(const Roster& roster, const std::set<std::string>& lost,
                                    const std::vector<int>& placement, const std::vector<bool>& heard_now,
                                    double now) {
  next_ = now + every_s_;
  std::vector<int> out;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
    if (!holds(placement, n) && !lost.contains(roster.nodes[n].name) && heard_now[n]) out.push_back(n);
  return out;
}

}  // namespace holdfast::launcher
