#pragma once
// How an agent starts the ranks of its node. A node may get several orders for one attempt:
//
// - FetchState: the sealed states with which programs are to begin are had from other nodes (mover.hpp).
// - StartRanks: copies to the partner begin, and so does the PMIx server of ranks that speak MPI. Each rank
//   is started as soon as its variables are known: at once, or when the PMIx server has told them. A rank is
//   started once in an attempt, whatever the leader repeats, and by this agent or by the one before it.
//
// What becomes of a rank then is the business of the RankKeeper.
#include "launcher/agent/daemon/rank_keeper.hpp"
#include "launcher/agent/mover/mover.hpp"
#include "launcher/agent/ranks/warm_ranks.hpp"
#include "src/base/rank_env.hpp"

namespace holdfast::launcher {

class RankStarter {
 public:
  RankStarter(AgentHere& here, RankKeeper& keeper) : here_(here), keeper_(keeper) {}
  /// Starts interpreters that wait for ranks (rank.warm).
  void warm_up();
  /// A PMIx server that an agent before this one has started; `running`: all processes of the live attempt.
  void adopt(const std::vector<RunProcess>& running);

  void fetch(const control::FetchState& order);
  void start(const control::StartRanks& order);
  /// Another attempt begins: what was ordered for those before it is void.
  void forget_older(int attempt);
  /// The agent leaves: no rank is started any more, and interpreters that wait for one are ended.
  void start_no_more();

  void pmix_connected(control::ChannelPtr channel) { pmix_ = std::move(channel); }
  void hear(const control::PmixToAgent& message);
  void tell_pmix(const control::Message& message) const;

 private:
  Command command_of_attempt(std::vector<std::string> argv, const control::StartRanks& order) const;
  void start_rank(int rank);
  void start_pmix(const control::StartRanks& order);
  void pmix_is_gone(int attempt, const std::string& why);
  bool copies_buffers(const control::StartRanks& order) const;
  void give_buffers(RankEnv& rank, const control::StartRanks& order) const;
  void begin_copies(const control::StartRanks& order);
  Mover::Place mover_at(int node, int port) const;

  AgentHere& here_;
  RankKeeper& keeper_;
  std::unique_ptr<WarmRanks> warm_;
  bool over_ = false;                            ///< nothing is started any more
  std::optional<control::StartRanks> starting_;  ///< the ranks of this attempt, ...
  /// ... and of those that speak MPI the variables from their PMIx server.
  std::map<int, std::vector<std::string>> pmix_variables_;
  int pmix_attempt_ = 0;      ///< of the live PMIx server here; 0: none
  control::ChannelPtr pmix_;  ///< its connection
};

}  // namespace holdfast::launcher
