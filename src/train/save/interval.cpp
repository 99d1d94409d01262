#include "src/train/save/interval.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/error.hpp"

namespace holdfast::train {
namespace {

/// Daly's estimate of the best time of work between two saves that take `c` each.
double daly(double c, double m) {
  if (c >= 2 * m) return m;
  const double x = c / (2 * m);
  return std::sqrt(2 * c * m) * (1 + std::sqrt(x) / 3 + x / 9) - c;
}

/// Expected time for `work` and its save under failures every `m`, relative to the work: Daly's model,
/// restarts apart.
double stretch(double work, double c, double m) { return std::expm1((work + c) / m) * m / work; }

}  // namespace

Interval best_interval(const SaveCosts& costs, double failures_per_s, double max_overhead,
                       std::int64_t most) {
  expects(costs.step_s > 0 && failures_per_s > 0, "steps take time, and something fails at some time");
  const double step = costs.step_s, c = costs.taken_s(), m = 1 / failures_per_s;
  const auto steps_in = [&](double seconds) {
    return static_cast<std::int64_t>(std::min(seconds / step, static_cast<double>(most)));
  };
  std::int64_t steps = std::max<std::int64_t>(1, steps_in(daly(c, m)));
  const auto time = [&](std::int64_t n) { return static_cast<double>(n) * step; };
  if (stretch(time(steps + 1), c, m) < stretch(time(steps), c, m)) ++steps;
  const auto at_least = [&](double seconds) {
    steps = std::max(
        steps, static_cast<std::int64_t>(std::ceil(std::min(seconds / step, static_cast<double>(most)))));
  };
  at_least(costs.persist_s);
  if (max_overhead > 0) at_least(c * (1 - max_overhead) / max_overhead);
  steps = std::clamp<std::int64_t>(steps, 1, std::max<std::int64_t>(1, most));
  const double tau = time(steps);
  return {steps, c / (tau + c), (tau / 2 + costs.persist_s) / m};
}

IntervalTuner::IntervalTuner(std::int64_t every, std::int64_t most, double max_overhead,
                             const FailureRate& rate)
    : most_(most), max_overhead_(max_overhead), rate_(rate) {
  now_.steps = every;
}

void IntervalTuner::step(double seconds, bool saving) {
  if (!saving)
    quiet_s_.add(seconds);
  else if (quiet_s_.known())
    excess_s_ += seconds - quiet_s_.value();
  rate_.lived(seconds);
}

void IntervalTuner::saved(double stall_s, double persist_s) {
  stall_s_.add(stall_s);
  persist_s_.add(persist_s);
  const double excess = std::exchange(excess_s_, 0.0);
  if (persist_s > 0) slowdown_.add(std::clamp(excess / persist_s, 0.0, 1.0));
  if (quiet_s_.known()) now_ = best_interval(costs(), rate_.shared(), max_overhead_, most_);
}

SaveCosts IntervalTuner::costs() const {
  return {quiet_s_.value(), stall_s_.value(), persist_s_.value(), slowdown_.value()};
}

std::string IntervalTuner::text() const {
  const SaveCosts c = costs();
  constexpr double percent = 100, hour = 3600;
  return fmt::format(
      "every {} steps ({:.1f} s): a save stalls {:.3f} s and takes {:.2f} s in the background (steps {:.0f} "
      "% "
      "slower); MTBF {:.1f} h; {:.2f} % of the time for saving, {:.2f} % expected to be lost",
      now_.steps, static_cast<double>(now_.steps) * c.step_s, c.stall_s, c.persist_s, c.slowdown * percent,
      1 / rate_.shared() / hour, now_.overhead * percent, now_.lost * percent);
}

}  // namespace holdfast::train
