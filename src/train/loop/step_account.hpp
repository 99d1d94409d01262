#pragma once
// What a step took: time, waits, bytes sent, allocations, and its trace. The trainer says where the step has
// come to; nothing here changes what the step computes.
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/index/state.hpp"
#include "src/base/allocations.hpp"
#include "src/base/clock.hpp"
#include "src/config/model_flops.hpp"
#include "src/control/rank_link.hpp"
#include "src/device/device.hpp"
#include "src/optim/sharded_adamw.hpp"
#include "src/train/common/metrics.hpp"
#include "src/train/common/setup.hpp"
#include "src/train/engine/engine.hpp"
#include "src/train/loop/step_trace.hpp"
#include "src/train/loop/wait_windows.hpp"

namespace holdfast::train {

/// What a step's numbers are told by.
struct StepScale {
  config::TokenFlops flops;          ///< of a token
  double peak_flops = 0;             ///< per second, of all devices together; 0: not known
  std::vector<std::string> sources;  ///< names of the data's
};
StepScale scale_of(const Setup& setup, const device::Device& device, std::vector<std::string> sources);

class StepAccount {
 public:
  /// References outlive it.
  StepAccount(const Engine& engine, StepScale scale, StepTrace trace, const comm::Communicator& world,
              control::RankLink& link)
      : engine_(engine),
        scale_(std::move(scale)),
        trace_(std::move(trace)),
        link_(link),
        waits_(world, link) {}

  /// A step begins, at `step` steps done. One that is skipped or rolled back is begun and never ended.
  void begin(std::int64_t step);
  /// Its gradients are reduced.
  void reduced();
  /// What was sent since reduced() is no part of the step: the comparisons of replicas and micro-batches.
  void leave_out_checks() { wire_bytes_ = engine_.wire_bytes(); }
  /// The state is updated with the step's `tokens`, and stands at `point`. The agent hears how long this rank
  /// computed, and for whom it waited.
  StepMetrics end(const checkpoint::RunPoint& point, std::int64_t tokens, const MicroBatchSums& sums,
                  const optim::StepUpdate& update);

  /// Of all steps that ended.
  double seconds_in_steps() const { return seconds_in_steps_; }

 private:
  void measure_memory();
  std::vector<std::pair<std::string, double>> by_source(std::span<const model::LossSum> losses) const;

  const Engine& engine_;
  StepScale scale_;
  StepTrace trace_;
  control::RankLink& link_;
  WaitWindows waits_;

  Clock::time_point start_{};
  std::optional<Allocations> allocations_;
  std::optional<double> others_before_;           ///< seconds that this thread had waited for other ranks
  double seal_wait_s_ = 0;                        ///< for the snapshot of the step before
  double data_before_ = 0;                        ///< seconds that this thread had waited for micro-batches
  double data_wait_s_ = 0;                        ///< for those of the step
  std::int64_t host_peak_ = 0, device_peak_ = 0;  ///< bytes
  std::int64_t steps_ = 0;                        ///< that ended
  std::int64_t wire_bytes_ = 0;                   ///< that this rank had sent when it last had gradients
  std::int64_t sent_ = 0;                         ///< between those of the step before and those of this one
  double seconds_in_steps_ = 0;
};

}  // namespace holdfast::train
