#pragma once
// A node: its memory, the processes on it, and its agent, which is modelled (sockets and processes) around
// the production decisions (LeadershipState, ElectionCount, VoteMerger).
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "launcher/agent/leader/leadership_state.hpp"
#include "launcher/agent/ranks/vote_merger.hpp"
#include "launcher/supervise/roster.hpp"
#include "tests/sim/training.hpp"

namespace holdfast::sim {

class World;
class Leader;

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
  control::OrderTaken order(const control::Order& what);

  ProcessPtr process;
  std::unique_ptr<Leader> leading;
  launcher::LeadershipState leadership;
  bool left = false;  ///< it knows that the run is over

 private:
  struct Known {
    RankPtr rank;
    bool started = false, ended = false;
    std::optional<control::RankExited> exited;
    std::optional<control::RankFailed> failed;
  };
  void hello(const ConnectionPtr& connection, const control::Hello& hello);
  void from_leader(const control::Message& message);
  void clear(int attempt);
  void clear_on();
  void start_ranks(const control::StartRanks& order);
  void tell_leader(const control::Message& message);
  control::Beat beat() const;
  void watch_leader();
  void start_election();
  struct Election;
  void count(bool last_call);
  void election_is_over(bool won, int term);
  void lead(int term);
  void finish();

  World& world_;
  Node& node_;
  ConnectionPtr leader_;
  std::map<int, Known> ranks_;
  launcher::VoteMerger votes_;
  int clearing_ = 0, starting_ = 0;  ///< attempts
  std::optional<control::Drain> drain_, drain_request_;
  bool paused_ = false;
  std::unique_ptr<Election> election_;
  bool reading_record_ = false;
};

class Node {
 public:
  Node(World& world, int number) : world_(world), number_(number) {}
  int number() const { return number_; }

  bool powered = true;
  bool clears = true, starts = true;  ///< its old processes can be ended; new ones can be started
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
  void bury_leader();
  World& world_;
  int number_;
  std::vector<std::unique_ptr<Agent>> dead_;  ///< kept: their handlers may still be on the stack
};

}  // namespace holdfast::sim
