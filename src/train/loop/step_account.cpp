#include "src/train/loop/step_account.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace holdfast::train {
namespace {

/// The most that this process has had resident.
std::int64_t peak_bytes_of_process() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::int64_t>(usage.ru_maxrss) * 1024 : 0;
}

constexpr std::int64_t steps_between_looks =
    16;  // at the device's memory: asking for it is a call of its driver

}  // namespace

StepScale scale_of(const Setup& setup, const device::Device& device, std::vector<std::string> sources) {
  const double set = setup.config.train.peak_tflops * 1e12;
  return {config::token_flops(setup.shape, setup.config.train.sequence),
          (set > 0 ? set : config::peak_flops_of(device.product())) * setup.place.world, std::move(sources)};
}

void StepAccount::begin(std::int64_t step) {
  start_ = Clock::now();
  trace_.begin(step);
  allocations_.emplace();
  others_before_ = engine_.waited_for_others();
  data_before_ = engine_.waited_for_data();
  seal_wait_s_ = 0;
}

void StepAccount::reduced() {
  const std::int64_t sent = engine_.wire_bytes();
  sent_ = sent - std::exchange(wire_bytes_, sent);
  seal_wait_s_ = engine_.waited_for_seal();
  data_wait_s_ = engine_.waited_for_data() - data_before_;
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
  measure_memory();
  const double rate = static_cast<double>(tokens) / seconds;
  std::optional<Utilization> mfu;
  if (scale_.peak_flops > 0)
    mfu = Utilization{rate * scale_.flops.palm / scale_.peak_flops,
                      rate * scale_.flops.causal / scale_.peak_flops};
  return {.step = point.step,
          .loss = sums.mean_loss(),
          .gradient_norm = update.gradient_norm,
          .lr = update.lr,
          .tokens = point.tokens,
          .tokens_per_s = rate,
          .step_s = seconds,
          .allocations = allocations,
          .wire_bytes = sent_,
          .save_stall_s = seal_wait_s_,
          .data_wait_s = data_wait_s_,
          .host_peak_bytes = host_peak_,
          .device_peak_bytes = device_peak_,
          .mfu = mfu,
          .loss_by_source = by_source(sums.by_source)};
}

void StepAccount::measure_memory() {
  host_peak_ = peak_bytes_of_process();
  if (steps_++ % steps_between_looks == 0) device_peak_ = std::max(device_peak_, engine_.device_bytes());
}

std::vector<std::pair<std::string, double>> StepAccount::by_source(
    std::span<const model::LossSum> losses) const {
  std::vector<std::pair<std::string, double>> out;
  if (losses.size() < 2) return out;
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (losses[i].valid > 0) out.emplace_back(scale_.sources[i], losses[i].mean());
  return out;
}

}  // namespace holdfast::train
