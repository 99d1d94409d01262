#pragma once
// What a run has come to: the fold of its event log. The leader changes it only by applying the events that
// it records, so a new leader that folds the log knows exactly what the old one knew.
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/control/rank_link.hpp"

namespace holdfast::launcher {

/// One attempt, as result.json lists it.
struct AttemptRecord {
  int number = 0, epoch = 0;            ///< epoch: the leadership under which its ranks were started
  std::vector<std::string> placement;   ///< slot -> node name
  double planned_at = 0;                ///< Unix seconds
  std::optional<double> first_step_at;  ///< when its first new step was seen
  std::optional<double> ended_at;
  std::string cause;      ///< why it ended: "finished", "node lost", "rank failed", ...; empty while it lives
  std::string node;       ///< the culprit's
  double detected_s = 0;  ///< from the culprit's last sign of life to the decision
  std::optional<double> recovered_s;          ///< from that decision to the run's next new step
  std::int64_t lost_steps = 0;                ///< steps of this attempt that a later one had to do again
  std::optional<control::Restored> restored;  ///< where its state came from
  std::int64_t last_step = 0;                 ///< optimizer steps done when it ended
};

struct RunState {
  double began_at = 0;
  std::string job;    ///< allocation: job id and restart count
  int job_epoch = 0;  ///< the first of this allocation
  std::vector<AttemptRecord> attempts;
  std::set<std::string> lost;      ///< nodes that may not be used
  std::set<std::string> suspects;  ///< nodes that were lost once and came back, or failed twice: used last
  std::int64_t durable_step = -1;
  std::map<std::int64_t, bool> verdicts;  ///< of the last attempt's checkpoints: durable or dropped
  std::int64_t same_step = -1;            ///< where the last attempt on healthy nodes ended ...
  int same_step_count = 0;                ///< ... and how many in a row ended there
  std::optional<control::FinalState> final_state;
  /// Asked for and not yet done: with `stop`, until the run is over; else until a checkpoint of `step` or
  /// later is durable.
  struct Draining {
    control::Drain what;
    double at = 0;          ///< Unix seconds
    std::int64_t step = 0;  ///< how far the run had come
  };
  std::optional<Draining> drain;
  struct Verdict {
    int exit_code = 0;
    std::string status, why;
    double at = 0;
  };
  std::optional<Verdict> verdict;  ///< the run is over

  bool attempt_live() const { return !attempts.empty() && !attempts.back().ended_at; }
};

/// Applies one event. Unknown events are ignored: a newer version may have written them.
void apply_event(RunState& state, const nlohmann::json& event);

/// result.json (contract 1).
nlohmann::json result_of(const RunState& state);

}  // namespace holdfast::launcher
