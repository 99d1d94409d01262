#pragma once
// Values by step, in bounded memory however long the run is. Pure.
#include <cstdint>
#include <optional>
#include <vector>

namespace holdfast::launcher::report {

struct Point {
  std::int64_t step = 0;
  double value = 0;
  bool operator==(const Point&) const = default;
};

/// Thins by this rule: steps are cut into at most 512 intervals of one width, a power of two, and of each the
/// smallest and the largest value stay. So no peak is lost, and a run of up to 512 steps is shown whole.
class Series {
 public:
  static constexpr std::int64_t intervals = 512;

  /// Values that are not finite and steps below 0 are left out.
  void add(std::int64_t step, double value);
  /// What stays, by step.
  std::vector<Point> points() const;
  /// Steps of one interval; 1: every value is there.
  std::int64_t width() const { return width_; }
  std::int64_t count() const { return count_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  const std::optional<Point>& smallest() const { return smallest_; }
  const std::optional<Point>& largest() const { return largest_; }
  const std::optional<Point>& last() const { return last_; }

 private:
  struct Interval {
    std::optional<Point> low, high;
    void add(const Point& point);
  };
  void halve();
  std::vector<Interval> kept_;
  std::int64_t width_ = 1, count_ = 0;
  double sum_ = 0;
  std::optional<Point> smallest_, largest_, last_;
};

}  // namespace holdfast::launcher::report
