#include "launcher/job/agent_probe.hpp"

#include <utility>

#include "src/base/log.hpp"

namespace holdfast::launcher {
namespace {
constexpr double kernel_silence_s = 5;  // TCP asks it every second
}

AgentProbe::AgentProbe(control::Loop& loop, control::TcpAddress address, const control::Key& secret,
                       Hooks hooks, Periods periods)
    : loop_(loop),
      address_(std::move(address)),
      secret_(secret),
      hooks_(std::move(hooks)),
      periods_(periods),
      next_(loop.now()) {}

void AgentProbe::tick() {
  if (channel() && channel_->unacknowledged_s().value_or(0) > kernel_silence_s) {
    channel_.reset();
    opened_ = false;
    next_ = loop_.now();
  }
  if (loop_.now() < next_ || (channel_ && !opened_)) return;
  if (!channel_) return call();
  next_ = loop_.now() + periods_.answering;
  hooks_.heard(StepWatch::Probe::answers);
}

void AgentProbe::call() {
  opened_ = false;
  channel_ = control::dial(loop_, address_, secret_, periods_.limit,
                           {[this] {
                              opened_ = true;
                              trouble_.clear();
                              next_ = loop_.now() + periods_.answering;
                              hooks_.connected(*channel_);
                              hooks_.heard(StepWatch::Probe::answers);
                            },
                            nullptr, [this](const std::string& why) { gone(why, opened_); }});
}

/// That nobody listens is usual while agents start.
void AgentProbe::gone(const std::string& why, bool was_open) {
  // Not from inside the channel's own call.
  loop_.post([over = std::exchange(channel_, nullptr)] {});
  opened_ = false;
  next_ = loop_.now() + (was_open ? Millis(0) : periods_.silent);
  if (was_open) return;
  if (std::exchange(trouble_, why) != why && why != control::refusal())
    log::warn("no connection to the agent at {}: {}", control::to_text(address_), why);
  if (blind()) return;
  hooks_.heard(control::nobody_listens(why) ? StepWatch::Probe::refuses : StepWatch::Probe::silent);
}

}  // namespace holdfast::launcher
