#pragma once
// Processes that live on after the rank that has started them has ended with 0. Most do no harm: a tracker of
// shared memory, an ssh-agent, TensorBoard, a data loader that ends in a moment. But a script that puts the
// training into the background ends with 0, too, and its run is not done. Pure.
#include <optional>
#include <string>
#include <vector>

namespace holdfast::launcher {

struct Leftover {
  int pid = 0;
  std::string name;  ///< as the kernel shows it: at most 15 characters
  double cpu_s = 0;  ///< processor time, with that of its own children that have ended
  bool gpu = false;  ///< it has a GPU open
};

/// Looks at them again and again. All times are in seconds of one clock.
class LeftoverWatch {
 public:
  static constexpr double look_every_s = 0.25;
  /// Those that do nothing for `idle_s` are harmless; a training that starts on a busy node does a little in
  /// that time. All others get `limit_s` to end: a worker of a data loader looks every 5 s whether its parent
  /// lives.
  static constexpr double idle_s = 3, limit_s = 10;
  /// Who has used less has done nothing, as a sleep; who uses less in idle_s does nothing.
  static constexpr double some_cpu_s = 0.005, idle_cpu_s = 0.001;
  /// Cores that are no idle daemon's.
  static constexpr double busy_cores = 0.5;

  enum class Verdict { none_left, wait, harmless, train };

  /// `rank_cpu_s`: processor time of the rank, with that of its children that it has waited for; nothing: it
  /// is not known.
  LeftoverWatch(std::optional<double> rank_cpu_s, double now) : rank_cpu_s_(rank_cpu_s), ended_at_(now) {}
  Verdict judge(std::vector<Leftover> left, double now);
  /// "python3 (4711), sleep (4712)": those of the last look.
  std::string names() const;

 private:
  std::optional<double> rank_cpu_s_;
  double ended_at_;
  std::vector<Leftover> first_, left_;  ///< of the first and the last look
  double first_at_ = -1, idle_since_ = -1, idle_at_cpu_s_ = 0;
};

}  // namespace holdfast::launcher
