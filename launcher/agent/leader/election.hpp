#pragma once
// One attempt of a candidate to become the leader: it asks every agent, until the answers suffice
// (election_count.hpp) or one second has passed. Then the agent tries to create the file of the term: the
// shared file system is the arbiter, since O_EXCL lets one candidate succeed.
#include <functional>
#include <vector>

#include "launcher/agent/leader/election_count.hpp"
#include "launcher/supervise/roster.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class Election {
 public:
  /// `lost[n]`: node n is on record as lost. `done` is called once, within about a second, with anything but
  /// Outcome::open. Destroying the election gives it up.
  Election(control::Loop& loop, const Roster& roster, const control::Key& secret, int self, int term,
           std::vector<bool> lost, std::function<void(ElectionCount::Outcome)> done);

 private:
  void count(bool last_call);
  std::string own_;
  int term_;
  std::function<void(ElectionCount::Outcome)> done_;
  ElectionCount answers_;
  std::vector<control::ChannelPtr> channels_;
  control::Loop::Handle limit_;
  bool over_ = false;
};

}  // namespace holdfast::launcher
