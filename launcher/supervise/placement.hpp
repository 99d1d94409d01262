#pragma once
// Placements of a run that shrinks and grows: slots in whole replicas. Pure.
#include <optional>
#include <vector>

#include "launcher/plan/shrink.hpp"
#include "launcher/supervise/spare_choice.hpp"

namespace holdfast::launcher {

/// Fewer slots, on nodes that are left: of the replicas that lost nodes, those that lost most go first, and
/// their other nodes take the free slots of the rest. The last replica moves into the gap, so that no other
/// slot changes. Nothing when fewer than `fewest` nodes, or not one whole replica, would be left.
std::optional<std::vector<int>> shrunk(const Roster& roster, const RunState& state,
                                       std::vector<int> placement, const std::vector<NodeView>& views,
                                       const Shrinking& shrinking, int fewest);

/// As many more slots, up to the planned number, as spares that were heard just now can fill in whole
/// replicas.
std::vector<int> grown(const Roster& roster, const RunState& state, std::vector<int> placement,
                       const std::vector<NodeView>& views, const Shrinking& shrinking);

/// The slots that have another node than before, or none had.
std::vector<Promotion> changes(const std::vector<int>& before, const std::vector<int>& after);

}  // namespace holdfast::launcher
