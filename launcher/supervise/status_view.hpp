#pragma once
// The output of `holdfast status`: the state replayed from the event log and the last line of the metrics, as
// text and as JSON. Pure.
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {

/// What SLURM says of the job that owns the run; of a local run, what its lock says.
struct JobFacts {
  std::optional<std::int64_t> id;  ///< absent: none of the user's live jobs is this run's
  std::string unanswered;          ///< why SLURM could not be asked; else ""
  std::string state;               ///< as SLURM writes it; "": it knows no such job (any more)
  std::string reason;              ///< why it waits or has ended, as SLURM writes it
  std::string meaning;             ///< of the reason, in words; "": it is not known
  std::optional<double> start;     ///< Unix seconds: when it began, or is expected to
  bool pending = false, live = false;
  std::string local = {};  ///< of a local run, its process: "process 12 on host"; else ""
};

struct StatusFacts {
  std::string name;                        ///< run.name
  std::optional<std::int64_t> steps = {};  ///< train.steps; absent: only the program knows
  RunState state = {};
  int term = 0;
  std::optional<Roster> roster = {};             ///< absent: `holdfast run` has not started yet
  std::optional<nlohmann::json> last_step = {};  ///< last whole line of metrics.jsonl
  bool keeps_best = false;                       ///< eval.keep_best
  std::optional<BestCheckpoint> best = {};       ///< of such a run, if it has one
  config::RankPromises promises = {};
  std::optional<JobFacts> job = {};  ///< absent: nobody has asked
  double now = 0;  ///< Unix seconds, for ages and the rest of the time; 0: they are left out
};

/// Takes from the settings what they say: the name, the steps, the promises.
void take_settings(const config::RunConfig& config, StatusFacts& facts);

/// Adds the time until the last step to the account of a run that is not over: hours may pass without an
/// event. Of ranks that report nothing, until now, while SLURM says that the job runs.
void count_steps(StatusFacts& facts);

/// When the last step was done, in whole Unix seconds; nothing: it does not say.
std::optional<double> last_step_at(const StatusFacts& facts);

/// What goes on, in a few words: "training", "in the queue (Priority)". The job decides where it is known.
std::string headline(const StatusFacts& facts);
/// The same by the record alone and in words of ours: no reason, no evidence, nothing that a program has
/// written. For places that every user can read.
std::string state_for_all(const StatusFacts& facts);
/// Nodes of the allocation that could take a slot.
std::vector<std::string> spares(const StatusFacts& facts);
/// Nodes that checks have found critical, and why: they are not used.
std::map<std::string, std::string> unfit(const RunState& state);
/// Nodes of which checks only warn, and of what.
std::map<std::string, std::string> warned(const RunState& state);
/// "  2  node lost at step 41 on dgx005, noticed after 2.0 s"
std::string in_words(const AttemptRecord& attempt);
/// "1.6 h: 90.1 % productive, ..."; empty before the run has begun.
std::string in_words(const TimeAccount& time);
std::string status_text(const StatusFacts& facts);
nlohmann::json status_json(const StatusFacts& facts);

}  // namespace holdfast::launcher
