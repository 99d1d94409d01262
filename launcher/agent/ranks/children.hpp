#pragma once
// Processes that this agent has started or knows of, each with a pidfd: their end is known within
// milliseconds. The loop does not wait for a process that waits for storage before it becomes its program.
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "src/base/subprocess.hpp"
#include "src/control/loop.hpp"

namespace holdfast::launcher {

/// Called for a process that was started: `failed`, or `runs` and then `ended`.
struct ChildHooks {
  std::function<void(int status)> ended;              ///< exit code or 128 + signal
  std::function<void(const Error& why)> failed = {};  ///< it could not become the program, and has ended
  std::function<void()> runs = {};                    ///< it has become the program, or was ended before
};

class Children {
 public:
  explicit Children(control::RealLoop& loop) : loop_(loop) {}
  /// Starts a child and returns its pid; throws Error when no process can be created.
  pid_t start(const Command& command, ChildHooks hooks);
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
  /// It has been started, and has not become its program.
  bool begins(pid_t pid) const { return beginning_.contains(pid); }

 private:
  int reap(pid_t pid);
  void watch_end(pid_t pid, int pidfd, std::function<void()> ended);
  control::RealLoop& loop_;
  std::map<pid_t, control::Loop::Handle> watched_;  ///< their ends, or how they begin
  std::set<pid_t> beginning_;
  pid_t last_ended_ = 0;
  double last_cpu_s_ = 0;
};

}  // namespace holdfast::launcher
