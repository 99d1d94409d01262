#pragma once
// One try to become the leader: ask every agent, and when half of them (counting the lost ones out) answer
// that they hear no leader either, take the epoch's file. The shared file system is the arbiter: O_EXCL lets
// one candidate through.
#include <functional>
#include <set>
#include <vector>

#include "launcher/supervise/roster.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class Campaign {
 public:
  /// `third_voice` is asked when of two agents only this one is left; it throws Error when it has no answer.
  /// `done` is called once, within about a second. Destroying the campaign gives it up.
  Campaign(control::Loop& loop, RunDir run, const Roster& roster, const control::Key& secret, int self,
           int epoch, std::function<void()> third_voice, std::function<void(bool won, int epoch)> done);

 private:
  void answered(int node, const control::Answer& answer);
  void decide(bool last_call);
  RunDir run_;
  Roster roster_;
  std::string own_;
  int epoch_;
  std::function<void()> third_voice_;
  std::function<void(bool, int)> done_;
  std::set<std::string> lost_;
  std::set<int> granted_, denied_;
  std::vector<control::ChannelPtr> channels_;
  control::Loop::Handle limit_;
  bool over_ = false;
};

/// May a candidate with these answers lead? Pure. `voters`: agents not known to be lost, the candidate among
/// them.
bool enough(int granted, int denied, int voters);

}  // namespace holdfast::launcher
