#pragma once
// The agent's side of the connection to the leader that its node follows.
//
//   when                          what the leader is told
//   a leader connects             a heartbeat, all that ranks have reported and that still holds, and a drain
//                                 that was requested here
//   every heartbeat_ms            a heartbeat with the progress of all live ranks; where one does not move,
//                                 its flight record
//   every second                  signs of the node, and signs of life of ranks that do not report
//
// Its orders go to the parts that carry them out. Orders of callers go to the leader, and its answers back.
#include <map>
#include <optional>
#include <string>

#include "launcher/agent/daemon/rank_ender.hpp"
#include "launcher/agent/daemon/rank_keeper.hpp"
#include "launcher/agent/daemon/rank_starter.hpp"
#include "launcher/agent/ranks/flights.hpp"
#include "launcher/agent/ranks/signs_of_life.hpp"

namespace holdfast::launcher {

class LeaderLink {
 public:
  LeaderLink(AgentHere& here, RankStarter& starter, RankKeeper& keeper, RankEnder& ender);

  /// The leadership has accepted this leader.
  void follow(control::ChannelPtr leader, const control::Hello& hello);
  const control::ChannelPtr& channel() const { return leader_; }  ///< null: no leader is followed
  void lost();
  void tell(const control::Message& message) const;
  void hear(const control::LeaderToAgent& message);

  /// The leader is told, and every leader after it.
  void request_drain(const control::Drain& what);
  void pass_on(const control::Order& order, const control::ChannelPtr& caller);
  /// The agent leaves: nothing is told periodically any more.
  void fall_silent() { heartbeat_timer_.reset(), signs_timer_.reset(); }

 private:
  control::Heartbeat heartbeat() const;
  void look_outside();
  void answer(const control::OrderTaken& what);

  AgentHere& here_;
  RankStarter& starter_;
  RankKeeper& keeper_;
  RankEnder& ender_;
  control::ChannelPtr leader_;
  int followed_ = 0;  ///< the term of the last leader that this process has followed
  std::optional<control::Drain> drain_request_;
  Flights flights_;
  SignsOfLife life_;                                                ///< of ranks that do not report
  int life_attempt_ = 0;                                            ///< whose ranks they are
  std::map<std::string, std::weak_ptr<control::Channel>> callers_;  ///< by the id of an order
  control::Loop::Handle heartbeat_timer_, signs_timer_;
};

/// The term of the leader that this agent, or the one before it on this node, has followed last.
int known_term(const Scratch& scratch, const RunDir& run);

}  // namespace holdfast::launcher
