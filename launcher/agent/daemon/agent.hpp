#pragma once
// The daemon of a node. It starts, watches and ends the node's ranks, tells the leader about them, and is
// ready to lead. It decides nothing about the run: the leader does (leader.hpp), whichever agent hosts it.
// This class answers connections; the duties are those of its parts. Who connects, and what for:
//
// - A rank reports progress, what it restored, votes, its end: RankPeers and RankKeeper.
// - The PMIx server of MPI ranks tells how they find it, and has fences and questions: RankStarter.
// - The leader orders to clear, to start, to drain and to finish: LeaderLink, and RankEnder, which clears.
// - A candidate asks whether it may lead: LeadershipState.
// - The job monitor asks whether the agent is there, which the handshake answers, and for a drain:
// LeaderLink.
// - A caller has orders for the leader, which LeaderLink passes on, and faults of a drill: this class.
#include <memory>

#include "launcher/agent/daemon/agent_here.hpp"
#include "launcher/agent/daemon/leader_link.hpp"
#include "launcher/agent/daemon/rank_ender.hpp"
#include "launcher/agent/daemon/rank_keeper.hpp"
#include "launcher/agent/daemon/rank_peers.hpp"
#include "launcher/agent/daemon/rank_starter.hpp"
#include "launcher/agent/leader/candidate.hpp"

namespace holdfast::launcher {

class Agent {
 public:
  /// Throws Error when another agent of this run runs on the node. `ended` is called when nothing is left to
  /// do, with the exit code.
  Agent(control::Loop& loop, NodeSystem& system, std::shared_ptr<slurm::Cluster> slurm, AgentInput in,
        std::function<void(int exit_code)> ended);
  void signalled(int signal) { ender_.signalled(signal); }
  const Candidate& candidate() const { return candidate_; }

 private:
  /// A connection and its hello.
  struct Peer {
    control::ChannelPtr channel;
    control::Hello hello = {};
    bool known = false;
    std::string refused = {};  ///< why its last message was that was refused
  };

  void open_scratch();
  void renew_scratch();
  void adopt_what_runs();
  void leaving();
  void left(int code);

  void accept(control::ChannelPtr channel);
  void closed(const control::ChannelPtr& channel);
  void send_away(const control::ChannelPtr& channel);
  void hear(Peer& peer, std::string_view line);
  void on_hello(const Peer& peer);
  bool admit(const Peer& peer);
  void from_caller(const Peer& peer, const control::CallerToAgent& message);
  std::string inject_fault(const control::Inject& fault);

  const AgentInput in_;
  std::function<void(int)> ended_;
  Candidate candidate_;
  control::Loop::Handle tcp_, local_;
  files::Fd claim_;  ///< a lock on the scratch folder, while this process lives
  AgentHere here_;
  RankEnder ender_;
  RankKeeper keeper_;
  RankStarter starter_;
  RankPeers ranks_;
  LeaderLink link_;
  std::map<control::Channel*, std::shared_ptr<Peer>> peers_;
  control::Loop::Handle alive_timer_, watch_timer_, injected_;
};

}  // namespace holdfast::launcher
