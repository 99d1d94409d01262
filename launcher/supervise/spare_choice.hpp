#pragma once
// Which spare takes a failed node's slot, and which nodes begin a job as spares. Pure.
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
  bool heard_now = true;       ///< its agent was heard recently
  bool unfit() const { return fitness == control::NodeHealth::Fitness::critical; }
};

/// By the record of the run, up to this job, and the ledger.
NodeScore score_of(const Roster& roster, const RunState& state, int node);

/// The best spare for a node that failed (-1: none in particular); -1: there is none.
///
/// Never: a node that is lost or evicted, that has a slot, or whose numerics probe differs. Of the others,
/// the first difference decides: not unfit; heard recently; not a suspect; fewer failures in this run
/// (node_record.hpp); no warning from its checks; not the batch host (losing it costs more than losing
/// another node); in the failed node's scalable unit (the same leaf switches, so that each GPU stays on its
/// rail); fewer failures in the ledger; fewer doubts; the lower index. `views`: by node; empty: nothing is
/// known of any.
int best_spare(const Roster& roster, const RunState& state, const std::vector<int>& placement,
               int failed_node, const std::vector<NodeView>& views);

struct Promotion {
  int slot = -1, from = -1, to = -1;
};
struct Filled {
  std::vector<int> placement;         ///< slot -> node
  std::vector<Promotion> promotions;  ///< by slot
};
/// With a fit spare in the place of each unfit node, as far as there are any: for the first start of ranks.
std::vector<int> without_unfit(const Roster& roster, const RunState& state, std::vector<int> placement,
                               const std::vector<NodeView>& views);

/// Replaces every lost node of `placement` by a spare; nothing when the spares do not suffice.
std::optional<Filled> fill(const Roster& roster, const RunState& state, std::vector<int> placement,
                           const std::vector<NodeView>& views);

/// For the start of a job: nodes with a bad record leave their slots to better spares, the worst node first,
/// each to the spare that best_spare() would choose. Better is one with fewer failures in this run; in the
/// same scalable unit also one with as many of these and fewer in the ledger, or as many of both and fewer
/// doubts. The batch host stays a spare.
std::vector<int> with_better_nodes(const Roster& roster, const RunState& state, std::vector<int> placement);

}  // namespace holdfast::launcher
