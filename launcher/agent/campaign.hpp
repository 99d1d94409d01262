#pragma once
// One try to become the leader: ask every agent, until the answers suffice (ballot.hpp) or its second is
// over. The term's file is then the agent's to take: the shared file system is the arbiter, O_EXCL lets one
// candidate through.
#include <functional>
#include <vector>

#include "launcher/agent/ballot.hpp"
#include "launcher/supervise/roster.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class Campaign {
 public:
  /// `lost[n]`: node n is on record as lost. `done` is called once, within about a second, with anything but
  /// Outcome::open. Destroying the campaign gives it up.
  Campaign(control::Loop& loop, const Roster& roster, const control::Key& secret, int self, int term,
           std::vector<bool> lost, std::function<void(Ballot::Outcome)> done);

 private:
  void count(bool last_call);
  std::string own_;
  int term_;
  std::function<void(Ballot::Outcome)> done_;
  Ballot ballot_;
  std::vector<control::ChannelPtr> channels_;
  control::Loop::Handle limit_;
  bool over_ = false;
};

}  // namespace holdfast::launcher
