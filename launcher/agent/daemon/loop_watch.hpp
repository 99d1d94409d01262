#pragma once
// Whether the serving agent's loop runs, by what it tells its guardian. Pure.
#include <optional>

#include "launcher/supervise/life_signs.hpp"

namespace holdfast::launcher {

/// Times are in seconds of one clock. Time in which the guardian itself did not run does not count.
class LoopWatch {
 public:
  explicit LoopWatch(double now) : looked_(now) {}

  void told(bool over, double now) { heard_ = over ? std::nullopt : std::optional(now); }
  void looked(double now) {
    if (heard_ && now - looked_ > 2 * between_looks_s) *heard_ += now - looked_;
    looked_ = now;
  }
  bool stands_still(double now) const { return heard_ && now - *heard_ > stuck_agent_s; }

  static constexpr double between_looks_s = 0.5;

 private:
  std::optional<double> heard_;  ///< nothing: not heard yet, or it ends
  double looked_;
};

}  // namespace holdfast::launcher
