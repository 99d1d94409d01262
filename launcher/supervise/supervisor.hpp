#pragma once
// The life of a run: it is told what happened and when, and returns actions. What it does in which stage is a
// table (stage_table.cpp), and so are the answers to orders (order_table.cpp) and what follows from a failure
// (policy.cpp, budget_table.cpp). Beside the record it keeps nothing but its stage. What must be remembered
// of nodes, ranks and failures is kept by parts, which know nothing of each other: they are told what they
// need, and answer.
//
// clang-format off
//   keeps           what                                        says                         of what
//   node_watch      agents: heartbeats, silence, majority       attempt_end, attempt_plan    what is recorded of an attempt
//   clear_watch     nodes whose old ranks have not ended
//   attempt_watch   ranks: starts, steps, ends                  drain                        saves, evictions, the end of a run
//   failure_watch   a failure until its diagnosis; signs        silent_corruption            what is not trusted any more
//   hang_watch      pace, hangs                                 node_list                    all nodes, for `ctl spares`
//   slow_watch      who computes late, slow networks and links
//   spare_checks    fitness and numerics of nodes
//   restore_ladder  states in the memory of nodes, for the next start
// clang-format on
// Pure: no clock, no socket, no file.
#include "launcher/plan/shrink.hpp"
#include "launcher/supervise/actions.hpp"
#include "launcher/supervise/attempt_watch.hpp"
#include "launcher/supervise/clear_watch.hpp"
#include "launcher/supervise/failure_watch.hpp"
#include "launcher/supervise/hang_watch.hpp"
#include "launcher/supervise/node_watch.hpp"
#include "launcher/supervise/order_table.hpp"
#include "launcher/supervise/policy.hpp"
#include "launcher/supervise/restore_ladder.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"
#include "launcher/supervise/slow_watch.hpp"
#include "launcher/supervise/spare_checks.hpp"
#include "launcher/supervise/stage_table.hpp"
#include "src/config/rank_promises.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// Settings and facts of the plan that the supervisor needs beside [supervise].
struct RunFacts {
  Shrinking shrinking;
  config::RankPromises promises = {};
};
RunFacts run_facts_of(const config::RunConfig& resolved);

class Supervisor {
 public:
  /// `state` is replayed from the log so far; `now` in seconds of a steady clock, `unix_now` the same moment
  /// in Unix time. `drain_s`: how long a run that is told to end may take. `table` must outlive it.
  Supervisor(Roster roster, config::Supervise limits, int drain_s, int term, RunState state, double now,
             double unix_now, RunFacts facts = {}, const StageTable& table = stage_table());

  /// When the node of the leader before was last heard, by this node, which followed it. To be told at once.
  void last_leader_heard(int node, double at);
  /// Sets the time of all that is reported next.
  void at(double now);

  void heartbeat(int node, const control::Heartbeat& what);  ///< also the first one
  void agent_gone(int node);  ///< the connection broke; only silence makes the node lost
  void agent_unreached(int node, const std::string& why);  ///< the last reason why there is no connection
  void kernel_answered(int node, double at);  ///< it acknowledged what it was sent, its agent or not
  void cleared(int node, int attempt);
  void processes_left(int node, const control::ProcessesLeft& what);
  void states_sealed(int node, int attempt,
                     const std::vector<control::SealedState>& what);  ///< before cleared()
  void state_fetched(int node, const control::StateFetched& what);
  void rank_started(int node, const control::RankStarted& what);
  void rank_exited(int node, const control::RankExited& what);
  void rank_failed(int node, const control::RankFailed& what);
  void rank_finished(const control::RankFinished& what);
  void rank_heard(const control::RankHeard& what);
  void rank_waits(int node, const control::RankWaits& what);
  void rank_restored(const control::RankRestored& what);
  void rank_flight(int node, const control::RankFlight& what);
  void rank_seen(int node, const control::RankSeen& what);
  void checkpoint_decided(const control::CommitOutcome& outcome, const std::string& note,
                          double stalled_s = 0);
  /// The attempt was to begin from the newest checkpoint, and these are `damaged`; `left`: some are not.
  /// False: it is not launched now, since it begins from an older state in memory, or since the run ends for
  /// good. When none is left nothing of it is recorded, so that the next job does not begin anew either.
  bool checkpoints_judged(const std::vector<std::pair<std::int64_t, std::string>>& damaged, bool left);
  void checkpoints_removed(const std::vector<std::int64_t>& steps);
  void drain(const control::Drain& asked);
  void node_signs(int node, const control::NodeSigns& what);
  void node_health(int node, const control::NodeHealth& what);
  void rank_doubt(int node, const control::RankDoubt& what);
  void stacks(int node, const control::Stacks& what);
  /// Carries out an order and returns the answer. The same order given twice is one.
  control::OrderTaken order(const control::Order& what);
  void tick();
  /// The last ClearAll or Launch has been sent. It may have waited for the disk: the agents' time begins now.
  void ordered();

  /// All actions since the last call.
  std::vector<Action> take_actions();

  Stage stage() const { return stage_; }
  int attempt() const { return state_.attempts.empty() ? 0 : state_.attempts.back().number; }
  const RunState& state() const { return state_; }
  /// Its agent's heartbeats come; -1, no node: true.
  bool hears(int node) const { return node < 0 || nodes_.hears(node, now_); }
  const std::vector<int>& placement() const { return attempt_.placement(); }
  /// Ranks of this attempt, or of the one that is being planned.
  int world() const { return attempt_.world(); }
  /// RunState::asked_of_ranks(), with its deadline.
  std::optional<control::Drain> asked_of_ranks() const;
  /// Ranks that follow orders have been told, and none has taken the order yet.
  bool untaken(control::Order::Verb verb) const;

 private:
  // supervisor.cpp: what is found in a stage, and what follows
  std::optional<Failure> found(Trigger trigger);
  std::optional<Failure> broken_attempt() const;
  ClearWatch::Finding uncleared();
  Failure uncleared_node() const;
  Failure old_ranks_stay() const;
  std::optional<Failure> overdue_start() const;
  std::optional<Failure> hang();
  Failure diagnosed() const { return failures_.diagnosed(placement(), past_xids(state_, roster_)); }
  void carry_out(const StageRow& row, const Failure& failure);
  void enter(Stage stage);
  void extend_deadlines(double seconds);

  // supervisor_reports.cpp
  void report(Trigger trigger, const Failure& failure = {});
  void take_end(RankEnd end);
  void suspect(const Failure& failure);
  void ask_to_drain(const control::Drain& asked, bool for_good);
  void evict(int node, const std::string& reason, const std::string& sign);
  void evict_by(const std::string& sign, int node, const std::string& reason);
  OrderFacts facts_for(const control::Order& what) const;

  // supervisor_effects.cpp
  void record(Event event);
  void record_end(events::AttemptEnded ended, double silent_s = 0);
  void end_attempt(const Failure& found);
  void begin_attempt(Decision decision, const Failure& why);
  void plan_first();
  void finish(const RunOutcome& outcome);
  void lose(const std::vector<SilentNode>& nodes);
  void adopt();
  void choose_state();
  RestoreLadder::Facts ladder_facts() const;
  void launch();
  void record_slow();
  void record_checks();
  void tell_ranks();

  // supervisor_effects.cpp: what the parts and the record say together
  bool leaves_on_order() const;
  bool ended_on_order() const;
  bool saves_on(bool by_order, double since) const;
  const std::string& name(int node) const { return roster_.nodes[node].name; }
  double unix_now() const { return now_ + unix_offset_; }
  bool lost(int node) const { return state_.lost.contains(name(node)); }
  int lost_in_placement() const;
  bool is_of_attempt(int attempt, int rank) const { return attempt == this->attempt() && attempt_.has(rank); }
  bool stopping() const { return state_.drain && state_.drain->what.stop; }
  bool ranks_hear() const;
  bool all_cleared() const;
  bool signalled() const;
  bool worth_saving() const;
  std::int64_t highest_step() const;
  RunOutcome drained() const;
  RunState without_unheard_nodes() const;
  std::vector<NodeView> views() const;
  bool has_spare_for(int node) const;
  std::vector<SilentNode> silent_nodes() const;
  std::vector<int> uncleared_nodes() const;
  std::string old_ranks() const;
  double hours_left() const;

  Roster roster_;
  config::Supervise limits_;
  RunFacts facts_;
  int drain_s_, term_;
  const StageTable& table_;
  RunState state_;
  double now_, unix_offset_;
  double tick_at_ = -1;
  Stage stage_ = Stage::gathering;
  double stage_since_;
  bool order_waits_ = false;  ///< the ClearAll or Launch of this stage has not been sent yet
  double launch_at_ = 0;      ///< no launch before, after starts that failed
  NodeWatch nodes_;
  ClearWatch clear_;
  AttemptWatch attempt_;
  FailureWatch failures_;
  HangWatch hangs_;
  SlowWatch slow_;
  SpareChecks checks_;
  RestoreLadder ladder_;
  std::vector<Action> actions_;
};

}  // namespace holdfast::launcher
