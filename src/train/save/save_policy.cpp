#include "src/train/save/save_policy.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace holdfast::train {

SavePolicy::SavePolicy(const config::Checkpoint& settings, std::int64_t steps, std::int64_t at,
                       const FailureRate& rate)
    : settings_(settings),
      steps_(steps),
      last_(at),
      tuner_(settings.every, steps, settings.max_overhead, rate),
      said_(settings.every) {}

void SavePolicy::drain(const control::Drain& drain) {
  if (!drain_ || drain.stop) drain_ = drain;
}

StepOrders SavePolicy::orders(std::int64_t step, bool busy) {
  const bool last = step == steps_;
  StepOrders out;
  out.stop = drain_ && drain_->stop && !last;  // a run that is done needs no other job
  out.must = last || drain_;
  out.save = out.must || due(step);
  if (out.stop) out.set_reason(drain_->reason);
  if (out.save && !out.must && busy && settings_.when_busy == config::WhenBusy::skip) {
    out.save = false;
    ++skipped_;
  }
  return out;
}

void SavePolicy::begun(std::int64_t step) {
  last_ = step;
  drain_.reset();
}

bool SavePolicy::measured(double step_s, const SaveTotals& totals) {
  if (std::exchange(warm_, true)) tuner_.step(step_s, seen_.begun > seen_.settled);
  const std::int64_t settled = totals.settled - seen_.settled;
  if (settled == 0) {
    seen_.begun = totals.begun;
    return false;
  }
  if (totals.failed == seen_.failed)
    tuner_.saved((totals.stall_s - seen_.stall_s) / static_cast<double>(settled), totals.persist_s);
  seen_ = totals;
  if (10 * std::abs(every() - said_) < std::max<std::int64_t>(said_, 1)) return false;
  return std::exchange(said_, every()) != every();
}

std::int64_t SavePolicy::every() const {
  return settings_.interval == config::Interval::automatic ? tuner_.now().steps : settings_.every;
}

SavingMetrics SavePolicy::in_metrics(const SaveTotals& t) const {
  const Interval& now = tuner_.now();
  return {every(),     t.begun,      t.skipped + skipped_, t.failed, t.stall_s,
          t.persist_s, t.cost.bytes, now.overhead,         now.lost};
}

bool SavePolicy::due(std::int64_t step) const {
  if (settings_.interval == config::Interval::automatic) return step - last_ >= every();
  return settings_.every > 0 && step % settings_.every == 0;
}

}  // namespace holdfast::train
