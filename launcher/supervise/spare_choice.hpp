#pragma once
// Which spare takes a failed node's slot. Pure.
#include <optional>
#include <vector>

#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// What the leader knows of a node now.
struct NodeView {
  control::NodeHealth::Fitness fitness = control::NodeHealth::Fitness::unknown;
  bool numerics_agree = true;  ///< its numerics probe has the run's hash, or is not known
  bool fresh = true;           ///< its agent was heard recently
};

/// The best spare for a node that failed (-1: none in particular); -1: there is none.
///
/// Never: a node that is lost or evicted, that has a slot, whose numerics probe differs, or whose fitness is
/// critical. Of the others, the first difference decides: heard recently; not a suspect; no warning from its
/// checks; not the batch host (losing it costs more than losing another node); in the failed node's scalable
/// unit (the same leaf switches, so that each GPU stays on its rail); fewer failures in the ledger; the lower
/// index. `views`: by node; empty: nothing is known of any.
int best_spare(const Roster& roster, const RunState& state, const std::vector<int>& placement,
               int failed_node, const std::vector<NodeView>& views);

struct Promotion {
  int slot = -1, from = -1, to = -1;
};
struct Filled {
  std::vector<int> placement;         ///< slot -> node
  std::vector<Promotion> promotions;  ///< by slot
};
/// Replaces every lost node of `placement` by a spare; nothing when the spares do not suffice.
std::optional<Filled> fill(const Roster& roster, const RunState& state, std::vector<int> placement,
                           const std::vector<NodeView>& views);

}  // namespace holdfast::launcher
