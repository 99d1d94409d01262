#pragma once
// Placements of a run that shrinks and grows: slots in whole replicas. Pure.
#include <optional>
#include <vector>

#include "launcher/plan/shrink.hpp"
#include "launcher/supervise/spare_choice.hpp"

namespace holdfast::launcher {

/// Fewer slots, on the nodes that are left: the replicas that lost most nodes are removed first, and their
/// other nodes take the free slots of the rest. The last replica moves into the gap, so that no other slot
/// changes. Nothing when fewer than `fewest` nodes, or not one whole replica, would be left.
std::optional<std::vector<int>> shrunk(const Roster& roster, const RunState& state,
                                       std::vector<int> placement, const std::vector<NodeView>& views,
                                       const Shrinking& shrinking, int fewest);

/// More slots, up to the planned number: as many whole replicas as recently heard spares can fill.
std::vector<int> grown(const Roster& roster, const RunState& state, std::vector<int> placement,
                       const std::vector<NodeView>& views, const Shrinking& shrinking);

/// The slots that have another node than before, or none had.
std::vector<Promotion> changes(const std::vector<int>& before, const std::vector<int>& after);

}  // namespace holdfast::launcher
