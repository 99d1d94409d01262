#pragma once
// How ranks are started: the environment they get, and mpirun's argument list. Pure but for reading our own
// environment.
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/ranks/scratch.hpp"
#include "launcher/supervise/roster.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/load.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// Is `[rank] command` started by mpirun, or by the agents themselves?
bool through_mpirun(const config::Rank& rank);

/// Is `[rank] command` our own trainer, which reports to its agent?
using config::own_trainer;

/// `[rank] command` with our own trainer found beside this program; any other is found as a shell would find
/// it.
std::vector<std::string> rank_command(const config::Rank& rank);

/// What the restore depends on, from the event log: RankEnv::trusted_step and durable_steps.
struct Restores {
  std::int64_t trusted_step = -1;
  std::vector<std::int64_t> durable_steps;
};

/// The environment of every process of an attempt on a node: our own environment without the variables of
/// SLURM and of other MPI jobs, the cluster's and the user's variables, and the run, node, term and attempt.
/// `restores`: for ranks and for mpirun, which passes it on to them.
std::vector<std::string> attempt_environment(const RunDir& run, const std::string& node,
                                             const Scratch& scratch, int term, int attempt, int world,
                                             int ranks_per_node, const config::ClusterFacts& cluster,
                                             const config::Rank& rank,
                                             const std::optional<Restores>& restores = std::nullopt);

/// The arguments of an mpirun that starts `holdfast start-rank` on the nodes of the hosts file through
/// `holdfast spawn`.
std::vector<std::string> mpirun_arguments(const Scratch& scratch, int attempt, int world,
                                          const std::string& interface);
/// The hosts file: one line per rank, in rank order.
std::string hosts_file(const std::vector<std::string>& slots, int ranks_per_node);

/// "dgx001: logs/attempt-0003/rank-00017.log"
std::filesystem::path attempt_logs(const RunDir& run, int attempt);
std::filesystem::path agent_log(const RunDir& run, const std::string& node);
std::filesystem::path rank_log(const RunDir& run, int attempt, int rank);

}  // namespace holdfast::launcher
