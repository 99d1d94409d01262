#pragma once
// How a run gets on, in lines that are added one after another: for the job's own log. And in a few words for
// SLURM's comment. Pure.
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervise/status_view.hpp"

namespace holdfast::launcher::report {

/// "step 120 of 1000, loss 2.3100, 1080 tokens/s, 0.95 s a step". `steps`: of the whole run; 0: not known.
std::string step_in_words(const nlohmann::json& line, std::int64_t steps);

class ProgressLines {
 public:
  /// What is on record already is not told, nor is the step that the run has come to.
  ProgressLines(const std::vector<LogEntry>& before, const std::optional<nlohmann::json>& last_step);

  /// Events that are new, and where a step is new and the last line about one is long enough ago: the step.
  /// `now`: seconds of a clock that began with this. Such lines come after 10 s, and then ever more seldom,
  /// up to one in ten minutes.
  std::vector<std::string> more(const std::vector<LogEntry>& events,
                                const std::optional<nlohmann::json>& last_step, std::int64_t steps,
                                double now);

 private:
  using Step = std::pair<std::int64_t, std::int64_t>;  ///< attempt and step
  static Step step_of(const std::optional<nlohmann::json>& line);
  std::map<int, int> told_;  ///< the newest event of each term
  Step last_step_;
  double step_line_at_ = 0;
};

/// What the run has done, once it is over.
std::vector<std::string> summary_lines(const StatusFacts& facts);

/// "{"holdfast":1,"run":"big","step":120,"of":1000,"loss":2.31,"state":"training"}". What is not known is
/// left out. Every user of the cluster can read it: it has words of ours and numbers, no evidence and nothing
/// that the program has written.
std::string job_comment(const StatusFacts& facts);
/// Nobody else's: it is empty, or such a text.
bool may_replace_comment(const std::string& comment);

}  // namespace holdfast::launcher::report
