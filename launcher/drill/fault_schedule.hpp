#pragma once
// When the faults of one case are due and which nodes are their targets, from what the run itself has
// written. Pure: a view of the run goes in, injections come out. The same seed and the same run give the same
// choices.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/drill/drill_plan.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"

namespace holdfast::launcher {

/// What can be seen of a run from outside.
struct RunView {
  double now = 0;  ///< Unix seconds
  std::vector<LogEntry> events;
  RunState state;  ///< replayed from them
  std::optional<Roster> roster;
  std::int64_t step = 0;  ///< of the last whole line of the metrics
  bool saving = false;    ///< a checkpoint is being written
};

/// A fault to inject now, or to undo.
struct ChosenFault {
  const Fault* fault = nullptr;
  bool undo = false;
  std::vector<std::string> nodes;  ///< in the order of the roster
  int rank = -1;
  double seconds = 0;
  std::uint64_t seed = 0;
};

/// A fault that was injected.
struct Injected {
  ChosenFault what;
  double at = 0;          ///< Unix seconds, as its injector says
  std::int64_t step = 0;  ///< of the run at that time
  bool undone = false;
};

class FaultSchedule {
 public:
  FaultSchedule(const DrillCase& plan, std::uint64_t seed);

  /// What is due: first the faults to undo, then at most one new fault. The caller carries them out, and
  /// reports when with record().
  std::vector<ChosenFault> due(const RunView& view);
  void record(const ChosenFault& injection, double at, const RunView& view);

  /// All faults were injected, and those that are undone were undone.
  bool over() const;
  const std::vector<Injected>& injected() const { return injected_; }
  /// Names of the faults that were never due.
  std::vector<std::string> missed() const;

 private:
  bool is_due(const PlannedFault& planned, const RunView& view);
  bool is_due_in_soak(const PlannedFault& planned, const RunView& view);
  bool recovered(const RunView& view) const;
  std::optional<ChosenFault> choose_target(const PlannedFault& planned, const RunView& view) const;
  std::uint64_t draw(std::uint64_t what) const;  ///< a random number for the next fault

  DrillCase plan_;
  std::uint64_t seed_;
  std::vector<PlannedFault> faults_;  ///< in order
  std::vector<Injected> injected_;
  /// Of a soak: the step at which the run had recovered from the last fault.
  std::optional<std::int64_t> recovered_since_;
};

}  // namespace holdfast::launcher
