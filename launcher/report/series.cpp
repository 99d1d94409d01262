#include "launcher/report/series.hpp"

#include <cmath>

#include "src/base/as_size.hpp"

namespace holdfast::launcher::report {

void Series::Interval::add(const Point& point) {
  if (!low || point.value < low->value) low = point;
  if (!high || point.value > high->value) high = point;
}

void Series::add(std::int64_t step, double value) {
  if (step < 0 || !std::isfinite(value)) return;
  while (step / width_ >= intervals) halve();
  const Point point{step, value};
  const auto place = as_size(step / width_);
  if (kept_.size() <= place) kept_.resize(place + 1);
  kept_[place].add(point);
  ++count_;
  sum_ += value;
  if (!smallest_ || value < smallest_->value) smallest_ = point;
  if (!largest_ || value > largest_->value) largest_ = point;
  if (!last_ || step >= last_->step) last_ = point;
}

void Series::halve() {
  std::vector<Interval> wider((kept_.size() + 1) / 2);
  for (std::size_t i = 0; i < kept_.size(); ++i)
    for (const auto& point : {kept_[i].low, kept_[i].high})
      if (point) wider[i / 2].add(*point);
  kept_ = std::move(wider);
  width_ *= 2;
}

std::vector<Point> Series::points() const {
  std::vector<Point> out;
  for (const auto& interval : kept_) {
    if (!interval.low) continue;
    const bool low_first = interval.low->step <= interval.high->step;
    out.push_back(low_first ? *interval.low : *interval.high);
    if (*interval.low != *interval.high) out.push_back(low_first ? *interval.high : *interval.low);
  }
  return out;
}

}  // namespace holdfast::launcher::report
