#include "src/train/loop/step_account.hpp"

#include <utility>

namespace holdfast::train {

void StepAccount::begin(std::int64_t step) {
  start_ = Clock::now();
  trace_.begin(step);
  allocations_.emplace();
  others_before_ = engine_.waited_for_others();
  seal_wait_s_ = 0;
}

void StepAccount::reduced() {
  const std::int64_t sent = engine_.wire_bytes();
  sent_ = sent - std::exchange(wire_bytes_, sent);
  seal_wait_s_ = engine_.waited_for_seal();
}

StepMetrics StepAccount::end(const checkpoint::RunPoint& point, std::int64_t tokens,
                             const MicroBatchSums& sums, const optim::StepUpdate& update) {
  const double seconds = seconds_since(start_);
  seconds_in_steps_ += seconds;
  // By the clock on the wall: what takes this rank's core away makes it slow as well.
  if (others_before_) link_.computed(seconds - (*engine_.waited_for_others() - *others_before_));
  const std::uint64_t allocations = allocations_->so_far();
  allocations_.reset();
  trace_.end(point.step);
  waits_.stepped(point.step, steady_seconds());
  return {.step = point.step,
          .loss = sums.mean_loss(),
          .gradient_norm = update.gradient_norm,
          .lr = update.lr,
          .tokens = point.tokens,
          .tokens_per_s = static_cast<double>(tokens) / seconds,
          .step_s = seconds,
          .allocations = allocations,
          .wire_bytes = sent_,
          .save_stall_s = seal_wait_s_};
}

}  // namespace holdfast::train
