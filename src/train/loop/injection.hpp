#pragma once
// Faults that a rank acts out when `holdfast drill` says so (drill.allowed): the trainer's side of a
// drill.
//
//   fault          what happens, at the next step
//   stall          the rank holds still in its forward pass for `seconds`
//   slow           for `seconds`, each of its steps computes twice as long
//   nan            one element of the gradient of each micro-batch becomes NaN from then on, also of one
//                  that the rank computes again: a device that computes wrong
//   nan_once       one element of one gradient becomes NaN
//   flip_state     one bit of a parameter of its shard changes, where the optimizer works
//   flip_gradient  one bit of the gradient of a micro-batch changes before it is reduced: wrong arithmetic.
//                  Taken is the next micro-batch that is computed again elsewhere (verify.micro_batch_every):
//                  of any other one nobody would ever know
//   throw          the rank fails with exit code 1
//   segfault       the rank ends with SIGSEGV
//   no_space       its next checkpoint's write fails with ENOSPC
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/control/rank_link.hpp"
#include "src/train/engine/engine.hpp"
#include "src/train/save/saver.hpp"

namespace holdfast::train {

const std::vector<std::string>& rank_faults();

/// Asks the agent for faults, step by step, and acts them out. Only where drill.allowed.
class RankInjector {
 public:
  /// References outlive it.
  RankInjector(control::RankLink& link, Engine& engine) : link_(link), engine_(engine) {}

  /// Before the gradients of a step; whether one of its micro-batches is computed again is settled, or none
  /// ever is.
  void begin_step(bool micro_batches_are_checked);
  /// From Engine::Progress: the rank has come so far.
  void passed(control::Phase phase);
  /// The step is about to change the state.
  void before_update();
  /// A writer that fails when it was asked to.
  WriteShard wrap(WriteShard write) const;

 private:
  void take(const control::Injection& fault);

  control::RankLink& link_;
  Engine& engine_;
  std::optional<control::Injection> gradient_, state_;  ///< to come
  double stall_s_ = 0;
  Clock::time_point slow_until_{};
  double cpu_s_ = 0;  ///< of this thread when it last passed something
  std::shared_ptr<std::atomic<bool>> no_space_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace holdfast::train
