#pragma once
// Whether the agent of a node is there: one connection to it, which stays open while the agent is.
//
//   the connection                                 is heard as
//   is open                                        answers, every `answering_period`
//   has broken, or the node's kernel is silent     nothing: the agent is called again at once
//   is refused                                     refuses, every `silent_period`
//   comes about in no other way                    silent, every `silent_period`
#include <functional>
#include <string>

#include "launcher/job/step_watch.hpp"
#include "src/control/channel.hpp"

namespace holdfast::launcher {

class AgentProbe {
 public:
  struct Periods {
    Millis answering{5000}, silent{1000}, limit{3000};  ///< of a call
  };
  struct Hooks {
    std::function<void(StepWatch::Probe)> heard;
    std::function<void(control::Channel&)> connected;  ///< anew
  };
  AgentProbe(control::Loop& loop, control::TcpAddress address, const control::Key& secret, Hooks hooks)
      : AgentProbe(loop, std::move(address), secret, std::move(hooks), Periods()) {}
  AgentProbe(control::Loop& loop, control::TcpAddress address, const control::Key& secret, Hooks hooks,
             Periods periods);
  AgentProbe(const AgentProbe&) = delete;
  /// To be called every half second.
  void tick();
  /// Calls an agent that is gone at every tick from now on: the run is over, and all of them go.
  void hurry() { periods_.silent = Millis(0); }
  /// It cannot be told whether the agent is there, for want of a descriptor; this is not heard.
  bool blind() const { return control::could_not_call(trouble_); }
  /// Connected now; null: it is not.
  control::Channel* channel() const { return channel_ && channel_->open() ? channel_.get() : nullptr; }

 private:
  void call();
  void gone(const std::string& why, bool was_open);

  control::Loop& loop_;
  control::TcpAddress address_;
  control::Key secret_;
  Hooks hooks_;
  Periods periods_;
  control::ChannelPtr channel_;
  bool opened_ = false;
  Clock::time_point next_;
  std::string trouble_;  ///< why it was not reached last
};

}  // namespace holdfast::launcher
