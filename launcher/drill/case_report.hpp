#pragma once
// What a case found: as expected, or every difference; and where the time of the recovery went. Pure.
#include <optional>
#include <string>
#include <vector>

#include "launcher/drill/fault_schedule.hpp"

namespace holdfast::launcher {

/// The end of an undisturbed run with the same settings.
struct Baseline {
  std::int64_t step = 0;
  std::string digest;
};

/// All that is known of a case that is over.
struct CaseRecord {
  DrillCase plan;
  int repetition = 1;
  std::uint64_t seed = 0;
  std::string run;  ///< its run directory
  std::vector<Injected> injected;
  std::vector<std::string> missed;
  RunView last;
  bool timed_out = false;
  bool every_step_once = false;  ///< metrics.jsonl: steps 1 to N in order, one line each
  int submissions = 1;
  std::vector<std::string> errors;  ///< of the drill itself: a fault that could not be injected
};

/// The event log shows the expected effect of every fault that was injected.
bool every_effect_is_seen(const CaseRecord& record);

/// Every difference from what is expected; empty: as expected.
std::vector<std::string> differences_of(const CaseRecord& record, const Baseline& baseline);

/// Parts of the time from a fault to the run's next new step, in seconds; nothing where the event log does
/// not show it.
struct RecoveryTimes {
  std::optional<double> detect;   ///< until the first event that tells of it
  std::optional<double> decide;   ///< then until a new attempt was planned
  std::optional<double> launch;   ///< then until all its ranks were up
  std::optional<double> restore;  ///< then until they had their state
  std::optional<double> step;     ///< then until the first new step
  std::optional<double> total;    ///< of all parts; of a takeover: until another node led
};
/// `next_at`: when the next fault was injected; infinity: it was the last.
RecoveryTimes recovery_times(const Injected& injected, double next_at, const RunView& last);

}  // namespace holdfast::launcher
