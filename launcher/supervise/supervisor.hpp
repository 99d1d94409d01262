#pragma once
// The life of a run as a table. Pure: it is told what happened and when, and returns actions; no clock, no
// socket, no file.
//
// clang-format off
//   stage      what is going on                          event                                    next
//   gathering  agents connect (first, or new leader)     every needed agent is connected          clearing, or running (adopt)
//   clearing   agents end ranks of older attempts        all placed nodes have answered, waited   starting
//   starting   ranks are being started                   all ranks up, each on its planned node   running
//   running    training                                  all ranks ended with 0                   over
//   any of the three above                               failure -> decide() says stop            over
//                                                        failure -> decide() says go on           clearing
//   any        fewer than half of the agents reachable   no node is declared lost; after a while  over (resign)
//
// A drain is not a stage but an order beside them (supervisor_drain.cpp):
//   drain      begins with                               while it lasts                           ends with
//   save       loss of the batch host, an order          every attempt is told to save now        a durable checkpoint
//   stop       SIGTERM, the time limit, no spare left    every attempt is told to save and end    ranks ended with 75, or nothing left
//                                                                                                 to save, or drain_s: over, exit 75
//              an order                                  the same                                 the same, exit 93: not requeued
//   evict      an order, a sign of failing hardware,     this attempt is told to save and end     ranks ended with 75, or drain_s: the
//              a straggler                                                                        attempt ends, and the run goes on
//                                                                                                 without the node
//   Ranks of a program that does not report are told by SIGTERM (supervisor_programs.cpp): they have obeyed when all have ended.
// clang-format on
#include <algorithm>
#include <map>
#include <variant>

#include "launcher/diagnose/diagnosis.hpp"
#include "launcher/plan/shrink.hpp"
#include "launcher/supervise/life_signs.hpp"
#include "launcher/supervise/pace.hpp"
#include "launcher/supervise/policy.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"
#include "src/config/run_config.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

enum class Stage { gathering, clearing, starting, running, over };
const char* name_of(Stage stage);

/// An action of the supervisor. They are carried out in order; a Record must be on disk before the next one
/// begins.
struct Record {
  LogEntry entry;  ///< complete but for its number
};
struct ClearAll {
  int attempt;
};  ///< to every agent that can be reached
struct Launch {
  int attempt;
  std::vector<int> placement;  ///< slot -> node; the run may have shrunk: world = size * ranks_per_node
  /// >= 0: start from a checkpoint, of this step or before; -1: from any state.
  std::int64_t trusted_step = -1;
  std::vector<std::int64_t> durable_steps = {};  ///< checkpoints that must exist, newest first
};
struct TellRanks {
  control::Drain what;
};  ///< to every agent, for the ranks of the attempt
struct PauseRanks {
  bool on;
};  ///< to every agent, for the ranks of the attempt
struct DumpRank {
  int node, rank;
};  ///< to this agent: what is the rank doing? Answered by stacks()
struct CheckNodes {
  std::vector<int> nodes;
};  ///< to these agents: answered by node_health()
struct FinishRun {
  int exit_code;
};  ///< to every agent, after result.json
struct Resign {
  std::string why;
};  ///< this leader gives up
using Action =
    std::variant<Record, ClearAll, Launch, TellRanks, PauseRanks, DumpRank, CheckNodes, FinishRun, Resign>;

/// Settings and facts of the plan that the supervisor needs beside [supervise].
struct RunFacts {
  Shrinking shrinking;
  /// The ranks are holdfast-train, which reports to its agent. Another program may, or may not.
  bool own_trainer = true;
};
RunFacts run_facts_of(const config::RunConfig& resolved);

class Supervisor {
 public:
  /// `state` is replayed from the log so far; `now` in seconds of a steady clock, `unix_now` the same moment
  /// in Unix time. `drain_s`: how long a run that is told to end may take.
  Supervisor(Roster roster, config::Supervise limits, int drain_s, int term, RunState state, double now,
             double unix_now, RunFacts facts = {});

  /// When the node of the leader before was last heard, by this node, which followed it. To be told at once.
  void last_leader_heard(int node, double at);
  /// Sets the time of all that is reported next.
  void at(double now);

  void agent_here(int node, const control::Beat& beat);  ///< a heartbeat, also the first one
  void agent_gone(int node);  ///< the connection broke; only silence makes the node lost
  void agent_unreached(int node, const std::string& why);  ///< the last reason why there is no connection
  void kernel_answered(int node, double at);  ///< it acknowledged what it was sent, its agent or not
  void cleared(int node, int attempt);
  void rank_started(int node, const control::RankStarted& what);
  void rank_exited(int node, const control::RankExited& what);
  void rank_failed(int node, const control::RankFailed& what);
  void rank_finished(const control::RankFinished& what);
  void rank_restored(const control::RankRestored& what);
  void rank_flight(int node, const control::RankFlight& what);
  void checkpoint_decided(const control::CommitOutcome& outcome, const std::string& note);
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
  bool hears(int node) const { return node < 0 || fresh(node); }
  const std::vector<int>& placement() const { return placement_; }
  /// Ranks of this attempt, or of the one that is being planned.
  int world() const { return static_cast<int>(placement_.size()) * roster_.ranks_per_node; }

 private:
  struct Node {
    bool connected = false;
    double last_beat = -1;  ///< -1: never heard in this term
    double kernel_answered = LifeSigns::never;
    std::optional<double> heard_before;  ///< in the term before, by this node
    int cleared = 0;                     ///< older attempts have ended there
    int attempt = 0;
    std::string unreached;       ///< why there was no connection last
    control::NodeHealth health;  ///< the newest
    double health_at = -1;       ///< -1: none yet
  };
  struct RankNow {
    bool started = false, finished = false, exited_well = false;
    bool ended = false;     ///< its process has ended, in any way
    bool reported = false;  ///< it has reported progress
    std::int64_t step = -1;
    control::Phase phase = control::Phase::starting;
    std::int64_t moves = 0;                     ///< phases begun, as it counts them
    double moved_at = 0;                        ///< when it last began a phase, ...
    double stepped_at = 0;                      ///< ... and a step
    double seen_at = 0;                         ///< when its agent last reported it as alive
    std::optional<control::RankFlight> flight;  ///< the last report, ...
    double flight_at = 0;                       ///< and when it came
  };
  /// A hang was found: the culprit's stacks were requested.
  struct Hang {
    int rank = -1;
    double since = 0;
    std::string stacks;
  };

  // supervisor.cpp
  void record(Event event);
  void take_progress(const control::Beat& beat, int node);
  void take_end(RankEnd end);
  void suspect_failure(Failure failure);
  bool majority() const;
  bool fresh(int node) const;
  bool lost(int node) const { return state_.lost.contains(name(node)); }
  bool lost_is_placed() const {
    return std::any_of(placement_.begin(), placement_.end(), [this](int n) { return lost(n); });
  }
  int slot_of(int node) const;
  int node_of_rank(int rank) const { return placement_[rank / roster_.ranks_per_node]; }
  const std::string& name(int node) const { return roster_.nodes[node].name; }
  std::int64_t highest_step() const;
  void ranks_came_to(std::int64_t step);
  LifeSigns signs_of(int node) const;

  // supervisor_stages.cpp
  void begin_attempt(std::vector<int> placement, const Decision& decision);
  void plan_first();
  config::Supervise patient() const;
  bool try_adopt();
  void extend_deadlines(double gap_s);
  void lose_silent_nodes();
  void lose(int node, double silent_s, const std::string& evidence);
  std::optional<Failure> name_lost(int node, double silent_s, const std::string& evidence);
  void check_gathering();
  void check_clearing();
  void check_starting();
  void check_running();
  bool heard_since_failure() const;

  // supervisor_hang.cpp
  void check_hang();
  void record_pace();
  void check_stragglers();

  // supervisor_failures.cpp
  Failure diagnosed() const;
  std::vector<SeenSign> signs_that_count() const;
  void fail(Failure failure);
  void update_nodes(const Failure& failure);
  void carry_out(Decision decision, const Failure& failure);
  void finish(RunOutcome outcome);
  double hours_left() const;
  std::int64_t trusted_before(const control::RankDoubt& what) const;

  // supervisor_programs.cpp
  bool reports() const;
  bool ranks_follow() const;
  bool signalled() const;
  bool saves_are_known() const;
  std::string unseen_end() const;
  void check_signalled();
  void tell_progress(events::AttemptEnded& ended) const;
  std::string why_ranks_cannot(const char* what) const;

  // supervisor_drain.cpp
  bool stopping() const { return state_.drain && state_.drain->what.stop; }
  bool worth_saving() const;
  void drain(const control::Drain& asked, bool for_good);
  bool ranks_hear() const;
  void tell_ranks();
  void evict(int node, const std::string& reason);
  void check_eviction();
  Failure eviction(const std::string& note) const;
  RunOutcome drained() const;

  // supervisor_orders.cpp
  control::OrderTaken order_eviction(const control::Order& what, const std::string& by);

  // supervisor_spares.cpp
  RunState without_unheard_nodes() const;
  std::vector<NodeView> views() const;
  bool numerics_placed() const;
  bool has_spare_for(int node) const;
  void check_spares();
  std::string spares_text() const;

  Roster roster_;
  config::Supervise limits_;
  RunFacts facts_;
  int drain_s_;
  int term_;
  RunState state_;
  double now_, unix_offset_, began_;
  Stage stage_ = Stage::gathering;
  double stage_since_;
  bool order_waits_ = false;  ///< the ClearAll or Launch of this stage has not been sent yet
  double minority_since_ = -1;
  std::vector<Node> nodes_;
  std::vector<int> placement_;
  std::vector<RankNow> ranks_;
  Pace pace_;
  Stragglers stragglers_;
  std::optional<Failure> pending_;  ///< the end of a rank that may be a symptom of the loss of a node
  std::vector<RankEnd> ends_;       ///< of the attempt, in the order of their reports
  std::vector<SeenSign> signs_;     ///< of the last minutes
  std::optional<Hang> hang_;
  double pending_since_ = 0, tick_at_ = -1, next_check_;
  double launch_at_ = 0;                     ///< no launch before, after starts that failed
  double pace_at_ = 0;                       ///< when the pace was last recorded
  double resumed_at_ = -1e9;                 ///< when this process was last found to have been suspended
  bool stepped_ = false;                     ///< the attempt's first new step has been seen
  std::int64_t newest_step_ = -1;            ///< that a rank of the attempt has reported, ...
  double newest_step_at_ = 0;                ///< ... and when it came
  double all_took_part_ = LifeSigns::never;  ///< then all ranks lived: they were needed for a later step
  std::vector<Action> actions_;
};

}  // namespace holdfast::launcher
