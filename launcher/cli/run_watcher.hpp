#pragma once
// Reads a run directory again and again for `holdfast watch`: each time only what is new.
#include <memory>
#include <vector>

#include "launcher/sinks/sink.hpp"
#include "launcher/supervise/journal.hpp"
#include "launcher/watch/screen.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

class RunWatcher {
 public:
  /// Throws Error when the settings cannot be read.
  explicit RunWatcher(RunDir run);
  /// What cannot be read now is said in `gap`, and what was read before stays.
  void look();
  watch::View& view() { return view_; }

 private:
  void look_at_events();

  RunDir run_;
  EventFollower events_;
  RunState replayed_;
  watch::View view_;
  std::unique_ptr<sinks::MetricsFeed> metrics_;
  std::vector<std::unique_ptr<sinks::Sink>> into_view_;
};

}  // namespace holdfast::launcher
