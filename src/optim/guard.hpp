#pragma once
// Watches loss and gradient norm for what is not a number and for spikes. Pure and deterministic: every rank
// and every repetition of the run comes to the same finding from the same two numbers.
#include <array>
#include <cstdint>
#include <string>

#include "src/config/run_config.hpp"

namespace holdfast::optim {

constexpr std::size_t max_guard_steps = 128;  ///< guard.window is at most this

/// What is remembered; a part of the run's state, so that a run goes on from a checkpoint with the same
/// findings. Trivially copyable.
struct GuardState {
  /// Of the last steps that updated the state, as rings: number n (from 0) lies at n % max_guard_steps.
  std::array<double, max_guard_steps> losses{}, norms{};
  std::uint64_t steps = 0;  ///< that were ever written
  std::uint64_t skips = 0;  ///< skips and rollbacks of the run so far; a rollback does not take them back
  bool operator==(const GuardState&) const = default;
};

struct GuardFinding {
  enum class Action {
    ok,
    report,    ///< update, and say `text`
    stop,      ///< no update; end the run with Exit::no_requeue
    skip,      ///< no update; go on with the next step's samples
    rollback,  ///< no update; go back to the newest checkpoint, and on from there with the samples behind
               ///< these
  };
  Action action = Action::ok;
  std::string text;  ///< what was seen and what follows: "loss 9.1 is 3.8 times the median of 64 steps, ..."
  bool operator==(const GuardFinding&) const = default;
};

/// Before the update of a step with at least one valid token. `loss`: mean over its tokens; `norm`: of the
/// mean gradient before clipping. NaN and infinity count as guard.on_nan; a value above factor times the
/// median, once guard.window steps are remembered, as guard.on_spike. Where both apply, and where both values
/// are spikes, one finding names all.
GuardFinding assess(const GuardState& state, const config::Guard& settings, double loss, double norm);

/// The state after the step. A step without an update leaves no trace in the statistics. After a rollback,
/// give it the state of the checkpoint but `skips` of the state before.
GuardState after(GuardState state, const GuardFinding& finding, double loss, double norm);

}  // namespace holdfast::optim
