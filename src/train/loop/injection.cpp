#include "src/train/loop/injection.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <thread>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::train {
namespace {

using Seconds = std::chrono::duration<double>;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

const std::vector<std::string>& rank_faults() {
  static const std::vector<std::string> names = {
      "stall", "slow", "nan", "nan_once", "flip_state", "flip_gradient", "throw", "segfault", "no_space"};
  return names;
}

void RankInjector::begin_step(bool micro_batches_are_checked) {
  if (const auto fault = link_.take_injection()) take(*fault);
  cpu_s_ = cpu_seconds();
  const bool hidden = gradient_ && gradient_->fault == "flip_gradient" && micro_batches_are_checked &&
                      !engine_.watches_micro_batch();
  if (gradient_ && !hidden) {
    if (gradient_->fault == "nan")
      engine_.break_gradients({true, gradient_->seed});
    else
      engine_.spoil_gradient({gradient_->fault == "nan_once", gradient_->seed});
    gradient_.reset();
  }
}

void RankInjector::take(const control::Injection& fault) {
  log::warn("a drill asks for: {} {} s, seed {}", fault.fault, fault.seconds, fault.seed);
  if (fault.fault == "stall") {
    stall_s_ = fault.seconds;
  } else if (fault.fault == "slow") {
    slow_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(fault.seconds));
  } else if (fault.fault == "nan" || fault.fault == "nan_once" || fault.fault == "flip_gradient") {
    gradient_ = fault;
  } else if (fault.fault == "flip_state") {
    state_ = fault;
  } else if (fault.fault == "throw") {
    throw Error(Exit::runtime, "this rank fails", "a drill asked for it");
  } else if (fault.fault == "segfault") {
    std::signal(SIGSEGV, SIG_DFL);
    std::raise(SIGSEGV);
  } else if (fault.fault == "no_space") {
    no_space_->store(true);
  } else {
    log::warn("a drill asks for a fault that no rank knows: {}", fault.fault);
  }
}

void RankInjector::passed(control::Phase phase) {
  if (phase != control::Phase::forward && phase != control::Phase::backward) return;
  if (phase == control::Phase::forward && stall_s_ > 0)
    std::this_thread::sleep_for(Seconds(std::exchange(stall_s_, 0)));
  if (Clock::now() < slow_until_)
    for (const double enough = 2 * cpu_seconds() - cpu_s_; cpu_seconds() < enough;) {
    }
  cpu_s_ = cpu_seconds();
}

void RankInjector::before_update() {
  // On the host the bit is one of a snapshot buffer, from which a save may be written: that one is to be
  // sound.
  constexpr std::chrono::seconds patience(10);
  if (!state_ || !engine_.snapshots().wait_released(Deadline::in(patience))) return;
  engine_.flip_parameter(state_->seed);
  state_.reset();
}

WriteShard RankInjector::wrap(WriteShard write) const {
  return [write = std::move(write), no_space = no_space_](const auto& point, auto pieces) {
    if (no_space->exchange(false)) throw system_error("cannot write a shard (a drill)", ENOSPC);
    return write(point, pieces);
  };
}

}  // namespace holdfast::train
