#pragma once
// Reads a run directory again and again for `holdfast watch`: each time only what is new.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/job/run_owner.hpp"
#include "launcher/sinks/sink.hpp"
#include "launcher/supervise/journal.hpp"
#include "launcher/watch/replay.hpp"
#include "launcher/watch/screen.hpp"
#include "src/base/run_dir.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// What was seen of a run at one moment.
struct SeenRun {
  watch::View view;
  std::optional<Owner> owner;  ///< of the run
  bool silent = false;         ///< it is not over, and the record has said nothing for longer than usual
};

class RunWatcher {
 public:
  /// Reads nothing yet.
  explicit RunWatcher(RunDir run);
  /// What cannot be read now is said in `gap`, and what was read before stays.
  SeenRun look();
  /// The whole run, for a replay.
  watch::Replay replay() const { return {view_with_events(events_.events()), tape_.lines()}; }

 private:
  class IntoView;
  void look_at_settings();
  void look_at_events();
  void look_at_disk();
  watch::View view_with_events(std::vector<LogEntry> events) const;
  bool silent() const;

  RunDir run_;
  EventFollower events_;
  RunState replayed_;
  watch::View view_;
  watch::StepTape tape_;
  config::Checkpoint keeping_;
  std::optional<Owner> owner_;
  std::unique_ptr<sinks::MetricsFeed> metrics_;  ///< null until the settings are read
  std::vector<std::unique_ptr<sinks::Sink>> into_view_;
  std::int64_t measured_step_ = -1;  ///< the checkpoint whose size is known
};

}  // namespace holdfast::launcher
