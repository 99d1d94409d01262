#pragma once
// Processes that this agent has started or knows of, each with a pidfd: their end is known within
// milliseconds.
#include <functional>
#include <map>
#include <optional>

#include "src/base/subprocess.hpp"
#include "src/control/loop.hpp"

namespace holdfast::launcher {

class Children {
 public:
  explicit Children(control::RealLoop& loop) : loop_(loop) {}
  /// Starts a child; `ended` gets its exit code or 128 + signal. Returns its pid; throws Error when it cannot
  /// start.
  pid_t start(const Command& command, std::function<void(int status)> ended);
  /// Watches a process that is not our child (an earlier agent has started it); `ended` once
  /// when it is gone.
  void watch(pid_t pid, std::function<void()> ended);
  /// It has been started or watched, and has not ended.
  bool awaits(pid_t pid) const { return watched_.contains(pid); }
  /// Processor time of the child that has ended last, with that of its children that it has waited for;
  /// nothing for any other process.
  std::optional<double> cpu_seconds_of(pid_t pid) const {
    return pid == last_ended_ ? std::optional(last_cpu_s_) : std::nullopt;
  }

 private:
  bool open(pid_t pid, std::function<void()> ended);
  control::RealLoop& loop_;
  std::map<pid_t, control::Loop::Handle> watched_;
  pid_t last_ended_ = 0;
  double last_cpu_s_ = 0;
};

}  // namespace holdfast::launcher
