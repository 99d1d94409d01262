#pragma once
// For log lines about what others can make happen as often as they like.
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "src/base/clock.hpp"

namespace holdfast {

/// Thread-safe.
class Seldom {
 public:
  /// Counts one more. At most once a minute: how many there were since the last time. Those after it are told
  /// with the next one that comes, if any does.
  std::optional<std::uint64_t> count(Clock::time_point now = Clock::now()) {
    const std::scoped_lock lock(mutex_);
    ++untold_;
    if (told_at_ && now - *told_at_ < std::chrono::minutes(1)) return std::nullopt;
    told_at_ = now;
    return std::exchange(untold_, 0);
  }

 private:
  std::mutex mutex_;
  std::uint64_t untold_ = 0;
  std::optional<Clock::time_point> told_at_;
};

}  // namespace holdfast
