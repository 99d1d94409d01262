#include "launcher/supervise/placement.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"

namespace holdfast::launcher {
namespace {

const std::string& name(const Roster& roster, int node) { return roster.nodes[node].name; }

}  // namespace

std::optional<std::vector<int>> shrunk(const Roster& roster, const RunState& state,
                                       std::vector<int> placement, const std::vector<NodeView>& views,
                                       const Shrinking& shrinking, int fewest) {
  const auto together = as_size(shrinking.together);
  if (together == 0 || placement.size() % together != 0) return std::nullopt;
  while (placement.size() > together &&
         static_cast<int>(placement.size() - together) >= std::max(1, fewest)) {
    std::size_t worst = 0;
    std::ptrdiff_t worst_lost = -1;
    for (std::size_t at = 0; at < placement.size(); at += together) {
      const auto begin = placement.begin() + static_cast<std::ptrdiff_t>(at);
      const auto lost = std::count_if(begin, begin + shrinking.together,
                                      [&](int node) { return state.lost.contains(name(roster, node)); });
      if (lost >= worst_lost) {
        worst = at;
        worst_lost = lost;
      }
    }
    const auto last = placement.end() - shrinking.together;
    std::copy(last, placement.end(), placement.begin() + static_cast<std::ptrdiff_t>(worst));
    placement.erase(last, placement.end());
    if (auto filled = fill(roster, state, placement, views)) return std::move(filled->placement);
  }
  return std::nullopt;
}

std::vector<int> grown(const Roster& roster, const RunState& state, std::vector<int> placement,
                       const std::vector<NodeView>& views, const Shrinking& shrinking) {
  if (shrinking.together == 0) return placement;
  while (static_cast<int>(placement.size()) + shrinking.together <= roster.slots()) {
    auto more = placement;
    for (int i = 0; i < shrinking.together; ++i) {
      const int spare = best_spare(roster, state, more, -1, views);
      if (spare < 0 || (!views.empty() && (!views[spare].heard_now || views[spare].unfit())))
        return placement;
      more.push_back(spare);
    }
    placement = std::move(more);
  }
  return placement;
}

std::vector<Promotion> changes(const std::vector<int>& before, const std::vector<int>& after) {
  std::vector<Promotion> out;
  for (std::size_t slot = 0; slot < after.size(); ++slot) {
    const int from = slot < before.size() ? before[slot] : -1;
    if (from != after[slot]) out.push_back({static_cast<int>(slot), from, after[slot]});
  }
  return out;
}

}  // namespace holdfast::launcher
