#pragma once
// Whether a case ended as it must, and where its time went. Pure.
#include <optional>
#include <string>
#include <vector>

#include "launcher/drill/course.hpp"

namespace holdfast::launcher {

/// What an undisturbed run of the same settings ends with.
struct Baseline {
  std::int64_t step = 0;
  std::string digest;
};

/// All that is known of a case that is over.
struct Outcome {
  DrillCase plan;
  int repetition = 1;
  std::uint64_t seed = 0;
  std::string run;  ///< its run directory
  std::vector<Struck> struck;
  std::vector<std::string> missed;
  View last;
  bool timed_out = false;
  bool every_step_once = false;  ///< metrics.jsonl: steps 1 to N in order, one line each
  int submissions = 1;
  std::vector<std::string> troubles;  ///< of the drill itself: a fault that could not be dealt
};

/// Every fault that was dealt has left what it must leave in the run's records.
bool every_fault_is_felt(const Outcome& outcome);

/// Empty: as it must be. Else every reason why not.
std::vector<std::string> what_is_wrong(const Outcome& outcome, const Baseline& baseline);

/// From a fault to the run's next new step, in seconds; nothing where the run's records do not show it.
struct Split {
  std::optional<double> detect;   ///< until the run's first word of it
  std::optional<double> decide;   ///< then until a new attempt was planned
  std::optional<double> launch;   ///< then until all its ranks were up
  std::optional<double> restore;  ///< then until they had their state
  std::optional<double> step;     ///< then until the first new step
  std::optional<double> total;    ///< of all; of a fault that only deposes the leader: until another one led
};
/// `next_at`: when the next fault was dealt; infinity: it was the last.
Split split_of(const Struck& struck, double next_at, const View& last);

/// When the run is over, and nothing will come of it any more.
bool ended_for_good(const View& view);

}  // namespace holdfast::launcher
