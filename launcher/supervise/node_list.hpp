#pragma once
// The answer to `ctl spares`: the state of every node, as JSON. Pure.
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervise/attempt_watch.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"
#include "launcher/supervise/spare_choice.hpp"

namespace holdfast::launcher {

/// What the list says of a node beside what is on record.
struct ListedNode {
  NodeView view;
  std::string why;                         ///< of its fitness
  std::optional<double> heard_s;           ///< since its last heartbeat; nothing: never heard
  std::optional<SlotProgress> ranks = {};  ///< nothing: it has none
};
/// A JSON array with an object for each node of the roster.
std::string node_list(const Roster& roster, const RunState& state, const std::vector<int>& placement,
                      const std::vector<ListedNode>& nodes);

}  // namespace holdfast::launcher
