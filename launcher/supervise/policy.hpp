#pragma once
// What to do when an attempt has ended: a pure function of the run's history and of who failed. See the table
// in policy.cpp.
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

struct Failure {
  enum class Kind {
    node_lost,       ///< silence, or it could not end its old ranks
    node_idle_lost,  ///< the same, of a node that hosts mpirun only
    rank_exited,     ///< a rank ended with a code or a signal, on a node that answers
    rank_hung,       ///< alive, no progress
    start_failed,    ///< not all ranks called home in time
    misplaced,       ///< a rank runs where the plan does not say
    mpirun_ended,    ///< mpirun gave up while the ranks' nodes answer
    leader_changed,  ///< the new leader found the attempt not whole
  };
  Kind kind = Kind::rank_exited;
  int node = -1;  ///< culprit; -1: nobody in particular
  int rank = -1;
  int status = 0;        ///< rank_exited: exit code or 128 + signal
  std::string evidence;  ///< in words
  double silent_s = 0;   ///< node_lost: since its last sign of life
};
const char* name_of(Failure::Kind kind);

struct Decision {
  /// Stop the run with this verdict ...
  std::optional<RunState::Verdict> stop;
  /// ... or go on with this placement (slot -> node).
  std::vector<int> placement;
  int promoted = -1, slot = -1;  ///< the spare that was taken, and for which slot
};

/// The best spare for a node that failed: not lost, not placed, suspects last, same scalable unit first, the
/// batch host last (losing it costs more than losing another), then by order. -1: none.
int best_spare(const Roster& roster, const RunState& state, const std::vector<int>& placement,
               int failed_node);

/// Replaces every lost node of `placement` by a spare; nothing when the spares do not suffice.
std::optional<std::vector<int>> fill(const Roster& roster, const RunState& state, std::vector<int> placement,
                                     Decision& decision);

/// `state` already knows of the ended attempt and the lost node.
Decision decide(const Roster& roster, const config::Supervise& limits, const RunState& state,
                const std::vector<int>& placement, const Failure& failure);

}  // namespace holdfast::launcher
