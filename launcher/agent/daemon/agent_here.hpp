#pragma once
// What the parts of an agent share: its settings, its node, the attempt that is alive there, and its ranks.
#include <functional>
#include <memory>

#include "launcher/agent/leader/leadership_state.hpp"
#include "launcher/agent/ranks/local_ranks.hpp"
#include "launcher/agent/ranks/log_spool.hpp"
#include "launcher/agent/ranks/node_system.hpp"
#include "launcher/agent/ranks/scratch.hpp"
#include "launcher/agent/signs/signs.hpp"
#include "launcher/supervise/roster.hpp"
#include "slurm/cluster.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/rank_promises.hpp"
#include "src/config/run_config.hpp"
#include "src/control/secret.hpp"

namespace holdfast::launcher {

struct AgentInput {
  RunDir run;
  Scratch scratch;  ///< with the name of the node, which is one of the roster
  Roster roster;
  config::RunConfig config;
  config::ClusterFacts cluster;
  control::Key secret;
  std::filesystem::path local_level;  ///< its folder on this node; empty: there is none
  SignPlaces signs;
};

struct AgentHere {
  control::Loop& loop;
  NodeSystem& system;
  const AgentInput& in;
  std::shared_ptr<slurm::Cluster> slurm;
  LeadershipState& leadership;
  /// Sends it to the leader that this node follows; without one it is dropped, and the next leader is told
  /// all that still holds.
  std::function<void(const control::Message&)> tell_leader;
  /// Creates the scratch folder again, where somebody has removed it. Throws Error.
  std::function<void()> renew_scratch;

  config::RankPromises promises = config::promises_of(in.config.rank);
  LocalRanks ranks = {};
  LogSpool spool{loop, in.scratch, in.run};
  Signs signs{loop, in.signs};

  const std::string& node() const { return in.scratch.node; }
  int attempt() const { return leadership.attempt(); }
};

}  // namespace holdfast::launcher
