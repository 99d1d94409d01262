#pragma once
// Two clocks: a monotonic one for durations and deadlines, UTC for people.
#include <chrono>
#include <cstdint>
#include <string>

namespace holdfast {

using Clock = std::chrono::steady_clock;
using Millis = std::chrono::milliseconds;

/// Seconds since the Unix epoch, microsecond resolution. For records that are compared across nodes, never
/// for deadlines.
double unix_seconds();
/// "2026-11-21T03:04:05.678901Z"
std::string utc_iso8601(double unix_seconds);
inline std::string utc_now() { return utc_iso8601(unix_seconds()); }

/// Of the monotonic clock, for what reckons in numbers; they mean nothing on another node or after a reboot.
inline double steady_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}
inline std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A moment after which waiting is an error.
class Deadline {
 public:
  static Deadline in(std::chrono::nanoseconds duration) { return Deadline(Clock::now() + duration); }
  bool passed() const { return Clock::now() >= at_; }
  /// Never negative.
  std::chrono::nanoseconds left() const {
    return passed() ? std::chrono::nanoseconds(0) : at_ - Clock::now();
  }
  int left_ms() const { return static_cast<int>(std::chrono::duration_cast<Millis>(left()).count()); }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace holdfast
