#pragma once
// A node: its memory, the processes on it, and its agent, which is modelled around what production has for
// the elections and the leader (Candidate) and for votes (VoteMerger).
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "launcher/agent/leader/candidate.hpp"
#include "launcher/agent/ranks/vote_merger.hpp"
#include "launcher/supervise/roster.hpp"
#include "tests/sim/loop.hpp"
#include "tests/sim/training.hpp"

namespace holdfast::sim {

class World;

/// One agent process.
class Agent {
 public:
  Agent(World& world, Node& node);
  ~Agent();

  void accept(const ConnectionPtr& connection);
  void rank_is_here(const RankPtr& rank);  ///< it connects, or this agent has started it
  void rank_says(const RankPtr& rank, const control::Message& what);
  void rank_ended(const RankPtr& rank, int status);
  void request_drain(const control::Drain& what);
  void order(const control::Order& what) { tell_leader(what); }
  const launcher::Leader* leading() const { return candidate_.leading(); }
  bool begins_to_lead() const { return leadership_.leads() && !leading(); }

  ProcessPtr process;
  bool left = false;  ///< it knows that the run is over

 private:
  struct Known {
    RankPtr rank;
    bool started = false, ended = false;
    std::optional<control::RankExited> exited;
    std::optional<control::RankFailed> failed;
  };
  void hello(const ConnectionPtr& connection, const control::Hello& hello);
  void from_leader(const control::LeaderToAgent& message);
  void clear(int attempt);
  void clear_on();
  void start_ranks(const control::StartRanks& order);
  void tell_leader(const control::Message& message);
  void send(const ConnectionPtr& connection, const control::Message& message);
  control::Beat beat() const;
  void look_at_storage();
  void finish();

  World& world_;
  Node& node_;
  VirtualLoop loop_;
  launcher::Candidate candidate_;
  launcher::LeadershipState& leadership_;  ///< the candidate's
  std::shared_ptr<Network::Door> door_;
  ConnectionPtr leader_;
  std::map<int, Known> ranks_;
  launcher::VoteMerger votes_;
  int clearing_ = 0, starting_ = 0;  ///< attempts
  std::optional<control::Drain> drain_, drain_request_;
  bool paused_ = false;
  double storage_hangs_since_ = -1;  ///< -1: it does not
  bool storage_silent_ = false;      ///< that it is was said
};

class Node {
 public:
  Node(World& world, int number) : world_(world), number_(number) {}
  int number() const { return number_; }

  bool powered = true;
  bool clears = true, starts = true;  ///< its old processes can be ended; new ones can be started
  int term = 0;                       ///< the last that an agent here has followed; 0: none
  std::unique_ptr<Agent> agent;
  std::vector<RankPtr> ranks;
  std::map<std::pair<int, int>, LocalCopy> local;

  void start_agent();
  void agent_dies();  ///< the guardian starts another one
  void power_off();
  void power_on();
  /// Ends processes of attempts below `attempt`; true when none is left.
  bool kill_older(int attempt);

  void rank_says(const RankPtr& rank, const control::Message& what);
  void rank_would_end(const RankPtr& rank);
  void rank_ended(const RankPtr& rank, int status);

 private:
  World& world_;
  int number_;
  std::vector<std::unique_ptr<Agent>> dead_;  ///< kept: their handlers may still be on the stack
};

}  // namespace holdfast::sim
