#pragma once
// What a step took: time, waits, bytes sent, allocations, and its trace. The trainer says where the step has
// come to; nothing here changes what the step computes.
#include <optional>
#include <utility>

#include "checkpoint/index/state.hpp"
#include "src/base/allocations.hpp"
#include "src/base/clock.hpp"
#include "src/control/rank_link.hpp"
#include "src/optim/sharded_adamw.hpp"
#include "src/train/common/metrics.hpp"
#include "src/train/engine/engine.hpp"
#include "src/train/loop/step_trace.hpp"
#include "src/train/loop/wait_windows.hpp"

namespace holdfast::train {

class StepAccount {
 public:
  /// References outlive it.
  StepAccount(const Engine& engine, StepTrace trace, const comm::Communicator& world, control::RankLink& link)
      : engine_(engine), trace_(std::move(trace)), link_(link), waits_(world, link) {}

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
  const Engine& engine_;
  StepTrace trace_;
  control::RankLink& link_;
  WaitWindows waits_;

  Clock::time_point start_{};
  std::optional<Allocations> allocations_;
  std::optional<double> others_before_;  ///< seconds that this thread had waited for other ranks
  double seal_wait_s_ = 0;               ///< for the snapshot of the step before
  std::int64_t wire_bytes_ = 0;          ///< that this rank had sent when it last had gradients
  std::int64_t sent_ = 0;                ///< between those of the step before and those of this one
  double seconds_in_steps_ = 0;
};

}  // namespace holdfast::train
