// The trainer between two steps: what it is told, comparisons that must hold, and pauses.
#include <fmt/format.h>

#include <thread>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/train/loop/trainer.hpp"

namespace holdfast::train {

control::Orders Trainer::take_orders() {
  control::Orders out = link_.take_orders();
  if (!out.drain && signals_) out.drain = signals_->take();
  if (!out.drain) return out;
  log::info("{}: the state is saved after this step{}", out.drain->reason,
            out.drain->stop ? ", and the run stops, to be continued" : "");
  policy_->drain(*out.drain);
  return out;
}

StepOrders Trainer::orders_of_this_step() {
  const bool pause = take_orders().pause;
  StepOrders orders = policy_->orders(point_.step + 1, saver_.busy());
  orders.pause = pause;
  return orders;
}

void Trainer::stop(const StepOrders& orders) {
  check_replicas();
  const bool durable = saver_.wait_durable();
  throw Error(Exit::transient, fmt::format("stopped at step {} ({})", point_.step, orders.reason_text()),
              durable ? "its state is saved" : fmt::format("its state could not be saved: {}", saver_.why()),
              "Start the run again: it goes on from its newest checkpoint");
}

void Trainer::check_replicas() {
  if (const auto doubt = silent_.compare_replicas(point_)) distrust(*doubt);
}

void Trainer::distrust(const Doubt& doubt) {
  progress(control::Phase::paused);  // whoever waits for the leader does not hang
  if (Snapshots* const local = engine_.local()) {
    local->join();
    checkpoint::StateFolder& file = local->file();
    for (int buffer = 0; buffer < file.buffers(); ++buffer)
      if (const auto what = file.sealed(buffer); what && what->point.step > doubt.trusted_step)
        file.open(buffer);
  }
  if (world_.rank() == 0) {
    log::error("silent data corruption: {}", doubt.why);
    link_.doubt(doubt.trusted_step, doubt.accused, doubt.check, doubt.why);
  }
  world_.barrier();        // the leader hears of it before it hears of any rank's end
  if (link_.supervised())  // it ends the ranks
    std::this_thread::sleep_for(std::chrono::seconds(3 * setup_.config.supervise.stop_s));
  else if (silent_.saved_step() <= doubt.trusted_step)
    saver_.wait_durable();  // what all agreed on is what the next run begins with
  throw Error(Exit::unhealthy, "the state cannot be trusted any more: silent data corruption", doubt.why,
              "Start the run again, without the node of the rank that is named: it goes on from a checkpoint "
              "on which all agreed");
}

void Trainer::hold(bool saved) {
  constexpr auto period = std::chrono::milliseconds(200);
  progress(control::Phase::paused);
  check_replicas();  // of a state that is being saved, nobody may vote before
  saver_.hand_over();
  progress(control::Phase::paused);
  if (world_.rank() == 0) log::info("training is paused after step {}", point_.step);
  for (;;) {
    StepOrders now;
    if (policy_) {
      const auto told = take_orders();
      if (told.drain) now = policy_->orders(point_.step, saver_.busy());
      now.pause = told.pause;
    }
    world_.broadcast(std::as_writable_bytes(std::span(&now, 1)), 0);
    if (now.save && !std::exchange(saved, true)) {
      keep(false, now);
      check_replicas();
      saver_.hand_over();
      progress(control::Phase::paused);
    } else if (now.save && policy_) {
      policy_->begun(point_.step);  // it was saved before
    }
    if (now.stop) stop(now);
    if (!now.pause) break;
    std::this_thread::sleep_for(period);
  }
  if (world_.rank() == 0) log::info("training goes on after step {}", point_.step);
}

}  // namespace holdfast::train
