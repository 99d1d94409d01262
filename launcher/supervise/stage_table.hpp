#pragma once
// The life of a run as a table: what each stage waits for, what happens then, and what a report means in it.
// The supervisor looks its rows up; it has no other list of them. Pure data.
#include <initializer_list>
#include <optional>
#include <vector>

namespace holdfast::launcher {

enum class Stage { gathering, clearing, starting, running, over };
const char* name_of(Stage stage);

/// A set of stages.
class Stages {
 public:
  constexpr Stages(std::initializer_list<Stage> stages) {
    for (const Stage s : stages) bits_ |= bit(s);
  }
  constexpr bool contains(Stage s) const { return bits_ & bit(s); }
  constexpr void remove(Stage s) { bits_ &= ~bit(s); }

 private:
  static constexpr unsigned bit(Stage s) { return 1u << static_cast<unsigned>(s); }
  unsigned bits_ = 0;
};

enum class Trigger {
  // Looked for at every tick.
  outcome_known,     ///< the last leader recorded the end, and may not have told the agents
  drain_overdue,     ///< the time of a run that was told to end is over
  eviction_overdue,  ///< the time of ranks that were told to save and leave a node is over
  nodes_silent,    ///< nothing has shown for too long that some nodes live, and half of the agents are heard
  minority_lasts,  ///< fewer than half of the agents have been heard for long
  checks_due,      ///< spares are to be checked
  agents_awaited,  ///< a node with a slot is not connected
  checks_awaited,  ///< nodes are being checked, and ranks have not been started in this job
  attempt_whole,   ///< every rank of a live attempt is there, and none of its nodes is lost
  attempt_broken,  ///< ranks of a live attempt did not come, or a node of it is lost
  nothing_runs,    ///< no attempt is live
  node_not_cleared,  ///< a node could not end its old ranks in time, and most others have ended theirs
  most_not_cleared,  ///< half of the nodes or more could not, and it is not on record yet
  clearing_overdue,  ///< the same for longer than the infrastructure may take
  state_open,        ///< nodes have states in their memory, and it is open which one the attempt starts from
  all_cleared,       ///< no rank of an older attempt is left, and the wait after a setback is over
  signalled_ended,   ///< the ranks got SIGTERM because the run is to end, and all have ended
  signalled_left,    ///< the same, because a node is to leave
  signalled_run,     ///< ranks got SIGTERM, and some have not ended
  all_done,          ///< every rank has ended with 0
  failure_clear,     ///< a rank has failed, and every node was heard since: no loss of a node is the cause
  failure_waits,     ///< a rank has failed, and some nodes have not been heard since
  all_started,       ///< every rank is up, on its planned node
  start_overdue,     ///< ranks are not up in time
  rank_vanished,     ///< an agent does not know a rank any more
  rank_hung,         ///< ranks make no progress, and it is known which one holds up the others
  pace_learned,      ///< the next leader would not know it
  node_slow,         ///< a node computes or communicates much longer than the others
  // Reported.
  node_lost,          ///< one with a slot
  node_back,          ///< a lost node has ended its old ranks
  rank_failed,        ///< a rank ended with an error, or runs on a wrong node
  ended_to_stop,      ///< a rank has saved and ended, as the run was told
  ended_to_leave,     ///< the same, for a node that leaves
  orders_changed,     ///< a drain or a pause was ordered
  no_state_to_save,   ///< the run is to end, and its nodes hold nothing that the shared level has not
  node_leaves,        ///< a node with ranks is to leave
  empty_node_leaves,  ///< the same, before its ranks have any state
  state_doubted,      ///< a comparison that must be equal was not
};

enum class Effect {
  wait,          ///< nothing else is looked for
  end_attempt,   ///< with a failure: the policy decides whether another one follows
  keep_failure,  ///< it may be a symptom of the loss of a node: it is diagnosed later
  keep_vanished,
  finish_drained,
  finish_done,
  tell_outcome,
  resign,
  lose_nodes,
  record_old_ranks,
  take_node_back,
  check_spares,
  adopt,
  plan_first,
  choose_state,
  launch,
  confirm_start,
  record_pace,
  record_slow,
  tell_ranks,
};

struct StageRow {
  Stages stages;
  Trigger trigger;
  Effect effect;
  std::optional<Stage> next = {};  ///< nothing: the same, or what the effect (the policy) decides
  bool goes_on = false;            ///< at a tick: rows below this one are looked at, too
};

/// At a tick, rows of the present stage are looked at from the first to the last. Of a report, the first row
/// of its trigger and the present stage counts; without one the report has no effect.
using StageTable = std::vector<StageRow>;
const StageTable& stage_table();
/// Null: there is none.
const StageRow* row_of(const StageTable& table, Stage stage, Trigger trigger);

}  // namespace holdfast::launcher
