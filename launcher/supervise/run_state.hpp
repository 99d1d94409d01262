#pragma once
// The state of a run, replayed from its event log. The leader changes it only by applying the events that it
// records, so a new leader that replays the log knows exactly what the old one knew.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/record/events.hpp"
#include "launcher/supervise/node_record.hpp"
#include "launcher/supervise/time_account.hpp"
#include "src/base/error.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// Among the paces: the longest silence of ranks that do not report.
inline constexpr const char* silence_pace = "outside";

/// A state of all ranks in the memory of nodes: those of two attempts may differ at the same step.
struct StateName {
  std::int64_t step = -1;
  int attempt = 0;  ///< that sealed it
  auto operator<=>(const StateName&) const = default;
};

/// One attempt, as result.json lists it.
struct AttemptRecord {
  int number = 0, term = 0;             ///< term: of the leader that started its ranks
  std::vector<std::string> placement;   ///< slot -> node name
  double planned_at = 0;                ///< Unix seconds
  std::optional<double> first_step_at;  ///< when its first new step was seen
  std::optional<double> ended_at;
  std::string cause;      ///< why it ended: "finished", "node lost", "rank failed", ...; empty while it lives
  std::string node;       ///< the culprit's
  int rank = -1;          ///< the culprit
  bool reports = true;    ///< its ranks reported their progress; if not, `last_step` is unknown
  double ran_s = 0;       ///< if not: from the start of all ranks to its end
  double detected_s = 0;  ///< from the culprit's last sign of life to the decision ...
  double decided_s = 0;   ///< ... and the part of it since the first report of the failure
  std::vector<std::string> evidence;  ///< what the decision rests on, most important first
  std::string advice;                 ///< for the user or the administrator
  int xid = 0, xid_rank = -1;         ///< the Xid that was the cause; the rank that showed it, where known
  std::optional<double> recovered_s;  ///< from that decision to the run's next new step
  /// Parts of its start, each from the end of the one before: from planned until the ranks are up and in
  /// place, until the state is loaded, until a new step is done.
  std::optional<double> launched_s, restored_s, first_step_s;
  std::int64_t lost_steps = 0;                ///< steps of this attempt that a later one had to repeat
  std::optional<control::Restored> restored;  ///< where its state came from
  std::int64_t last_step = 0;                 ///< optimizer steps done when it ended
  std::int64_t durable_before = -1;           ///< newest durable step when it was planned
  StateName begins_from;                      ///< in the memory of nodes; step -1: in none
  std::string waits_for;                      ///< old ranks that have not ended; "": its start waits for none
};

/// How a run or its allocation ended.
struct RunOutcome {
  int exit_code = 0;
  std::string status, why;
  double at = 0;
  std::vector<std::string> exclude = {};  ///< nodes that the next job should not get
  int term = 0;                           ///< of the leader that decided it
};

struct RunState {
  double began_at = 0;
  double last_at = 0;  ///< of the newest event, Unix seconds
  std::string job;     ///< allocation: job id and restart count
  int job_term = 0;    ///< the first of this allocation
  double job_began_at = 0;
  std::string leader;  ///< the newest leader's node
  TimeAccount time;
  std::vector<AttemptRecord> attempts;
  std::set<std::string> lost;      ///< nodes that may not be used
  std::set<std::string> suspects;  ///< nodes that were lost once and came back, or failed twice: used last
  std::map<std::string, std::string> slow;        ///< nodes that slowed the others down: the newest evidence
  std::map<std::string, std::string> copies_off;  ///< nodes without copies at their partners, and why
  std::set<std::string> evicted;  ///< of the lost ones: they may answer, and stay out all the same
  std::map<std::string, std::string> evicting;  ///< nodes that leave once the ranks have saved, and why
  std::optional<double> evicting_since;         ///< Unix seconds
  std::map<std::string, std::set<std::string>> evictions;  ///< sign -> nodes that it has evicted in this job
  std::map<std::string, int> failures;  ///< attempts of this job that ended by this node or on it
  /// Nodes of this job that the program has called broken, with nothing of the node itself to show it, and
  /// its words. The node is looked at.
  std::map<std::string, std::string> claims;
  std::map<std::string, control::NodeHealth> health;   ///< what checks have found of nodes of this job
  std::map<std::string, std::string> shared_findings;  ///< of most of them: check -> in words
  NodePasts pasts;                                     ///< of nodes that did something bad in any job
  bool paused = false;                                 ///< by an order
  /// Those of "save", "stop" and "pause" that are ordered now and that a rank of the attempt has taken.
  std::set<std::string> heard;
  std::int64_t durable_step = -1;
  std::optional<double> durable_at;  ///< Unix seconds: when the newest durable checkpoint became so
  std::set<std::int64_t> durable;    ///< the newest ones that retention has not removed
  int dropped = 0;                   ///< saves that failed or were skipped since the newest durable one ...
  std::string dropped_why;           ///< ... and why the last of them did
  /// After silent corruption: only shared checkpoints of this step or before may be started from, because
  /// nothing that was written between them and `tainted_step` is known to be right. -1: everything may.
  std::int64_t trusted_step = -1, tainted_step = -1;
  int tainted_attempt = 0;     ///< it and those before it wrote state that is not trusted
  std::int64_t best_step = 0;  ///< highest that any attempt has come to
  // What budgets (budget_table.hpp) have been spent. Those of the program are the run's: the next job goes on
  // counting, unless the run was stopped and somebody has submitted it again.
  int no_progress = 0;          ///< attempts in a row that brought neither a new step nor a durable one
  int restarts = 0;             ///< attempts that failed since the newest durable step
  std::int64_t same_step = -1;  ///< where the last attempt that the program ended has ended ...
  std::string same_error;       ///< ... with this error ...
  int same_step_count = 0;      ///< ... and how many in a row ended so
  std::set<StateName> refused;  ///< with which the program has ended again and again, without a new step
  /// An attempt of this program has made progress, as far as is known: what it needs was there.
  bool worked = false;
  /// Attempts in a row, after one that worked, that the program ended before they could do anything: what it
  /// needs at its start may be away for a while.
  int false_starts = 0;
  double false_since = 0;  ///< Unix seconds: when the first of them was planned
  int setbacks = 0;        ///< attempts in a row that the infrastructure ended before a new step
  double setback_s = 0;    ///< their starts and waits in this job
  std::map<std::string, events::KnownPace> pace;  ///< of this job; by phase, and "step" for whole steps
  /// No silence is taken for a hang before an attempt has shown signs of life for so long. 0: it is.
  double unjudged_s = 0;
  std::map<std::int64_t, bool> commit_outcomes;  ///< of the last attempt's checkpoints: durable or dropped
  std::optional<control::FinalState> final_state;
  /// A drain that is not done yet: with `stop`, until the run is over; else until a checkpoint of `step` or
  /// later is durable.
  struct Draining {
    control::Drain what;
    double at = 0;          ///< Unix seconds
    std::int64_t step = 0;  ///< how far the run had come
    bool for_good = false;  ///< the end of the run was ordered: the job is not requeued
  };
  std::optional<Draining> drain;
  std::optional<RunOutcome> outcome;  ///< set once the run is over

  /// It is over, and no other job continues it.
  bool over_for_good() const { return outcome && outcome->exit_code != static_cast<int>(Exit::transient); }
  bool attempt_live() const { return !attempts.empty() && !attempts.back().ended_at; }
  /// Ranks of the live attempt are there, and it is not lost.
  bool trains_on(const std::string& node) const;
  /// Are there attempts of this allocation?
  bool attempted() const { return !attempts.empty() && attempts.back().term >= job_term; }
  /// The drain that the ranks of the attempt must know of: every leader sends it to every agent it reaches.
  std::optional<control::Drain> asked_of_ranks() const;
  /// Are the ranks to hold? Not while they are asked to end.
  bool hold_ranks() const;
};

/// Steps that have a durable checkpoint, newest first; at most max_durable_steps.
std::vector<std::int64_t> newest_durable(const RunState& state);

/// Applies one event. An unknown one changes nothing: a newer version may have written it.
void apply(RunState& state, const LogEntry& entry);

/// The checkpoint that a run keeps as its best one; not a part of the record.
struct BestCheckpoint {
  std::int64_t step = 0;
  std::optional<double> held_out_loss;
};

/// result.json (contract 1): result.cpp.
nlohmann::json result_of(const RunState& state, const std::optional<BestCheckpoint>& best = {});
/// The exit code, when `result` was written by the leader of `term` in this allocation (RunState::job).
std::optional<int> code_of(const nlohmann::json& result, const std::string& allocation, int term);

}  // namespace holdfast::launcher
