#include "launcher/supervise/spare_checks.hpp"

#include <algorithm>
#include <map>

namespace holdfast::launcher {
namespace {

bool holds(const std::vector<int>& placement, int node) {
  return std::find(placement.begin(), placement.end(), node) != placement.end();
}

}  // namespace

SpareChecks::SpareChecks(std::size_t nodes, int every_s, double now)
    : nodes_(nodes), every_s_(every_s), next_(now) {}

bool SpareChecks::take(int n, const control::NodeHealth& what) {
  auto& node = nodes_[n];
  const bool news = node.checked
                        ? what.fitness != node.newest.fitness || what.numerics != node.newest.numerics
                        : what.fitness != control::NodeHealth::Fitness::unknown;
  node = {true, what};
  return news;
}

std::vector<NodeView> SpareChecks::views(const std::vector<int>& placement,
                                         const std::vector<bool>& fresh) const {
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
    const auto& health = nodes_[n].newest;
    const bool agrees = !known || health.numerics.empty() || health.numerics == most->first;
    out.push_back({health.fitness, agrees, fresh[n]});
  }
  return out;
}

/// Has a node with a slot reported its numerics probe?
bool SpareChecks::numerics_placed(const std::vector<int>& placement) const {
  return std::any_of(placement.begin(), placement.end(),
                     [this](int n) { return !nodes_[n].newest.numerics.empty(); });
}

std::vector<int> SpareChecks::begin(const Roster& roster, const std::set<std::string>& lost,
                                    const std::vector<int>& placement, const std::vector<bool>& fresh,
                                    bool before_start, double now) {
  next_ = now + every_s_;
  std::vector<int> out;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
    if (!holds(placement, n) && !lost.contains(roster.nodes[n].name) && fresh[n]) out.push_back(n);
  // Not later: the ranks need the node.
  const int active = placement.front();
  if (!out.empty() && before_start && fresh[active] && !numerics_placed(placement)) out.push_back(active);
  return out;
}

}  // namespace holdfast::launcher
