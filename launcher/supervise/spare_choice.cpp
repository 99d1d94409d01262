#include "launcher/supervise/spare_choice.hpp"

#include <algorithm>
#include <tuple>

#include "src/base/error.hpp"

namespace holdfast::launcher {

using Fitness = control::NodeHealth::Fitness;

int best_spare(const Roster& roster, const RunState& state, const std::vector<int>& placement, int failed,
               const std::vector<NodeView>& views) {
  expects(views.empty() || views.size() == roster.nodes.size(), "one view for each node");
  int best = -1;
  std::tuple<bool, bool, bool, bool, bool, int, int> best_key;
  for (int n = 0; n < static_cast<int>(roster.nodes.size()); ++n) {
    const auto& node = roster.nodes[n];
    const NodeView view = views.empty() ? NodeView{} : views[n];
    const bool placed = std::find(placement.begin(), placement.end(), n) != placement.end();
    if (n == failed || placed || state.lost.contains(node.name) || !view.numerics_agree ||
        view.fitness == Fitness::critical)
      continue;
    const bool elsewhere = failed >= 0 && node.scalable_unit != roster.nodes[failed].scalable_unit;
    const std::tuple key{!view.fresh,
                         state.suspects.contains(node.name),
                         view.fitness == Fitness::warning,
                         n == roster.batch_host,
                         elsewhere,
                         node.past_failures,
                         n};
    if (best < 0 || key < best_key) {
      best = n;
      best_key = key;
    }
  }
  return best;
}

std::optional<Filled> fill(const Roster& roster, const RunState& state, std::vector<int> placement,
                           const std::vector<NodeView>& views) {
  Filled filled{std::move(placement), {}};
  for (std::size_t slot = 0; slot < filled.placement.size(); ++slot) {
    int& node = filled.placement[slot];
    if (!state.lost.contains(roster.nodes[node].name)) continue;
    const int spare = best_spare(roster, state, filled.placement, node, views);
    if (spare < 0) return std::nullopt;
    filled.promotions.push_back({static_cast<int>(slot), node, spare});
    node = spare;
  }
  return filled;
}

}  // namespace holdfast::launcher
