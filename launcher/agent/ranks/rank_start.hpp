#pragma once
// How ranks are started: the environment they get. Pure but for reading our own environment.
#include <string>
#include <vector>

#include "launcher/supervise/roster.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// The environment of every process of an attempt on a node: our own environment without the variables of
/// SLURM and of other MPI jobs, the cluster's and the user's variables, and the run, node and attempt. Behind
/// all else, PYTHONPATH of a program of one's own has the folder with the client's Python package. `of_job`:
/// the variables of SLURM that ranks have.
std::vector<std::string> attempt_environment(const RunDir& run, const std::string& node,
                                             const control::StartRanks& order,
                                             const config::ClusterFacts& cluster, const config::Rank& rank,
                                             const std::vector<std::string>& of_job);

/// "dgx001: logs/attempt-0003/rank-00017.log"
std::filesystem::path attempt_logs(const RunDir& run, int attempt);
/// The attempt whose logs a folder of this name has; 0: of none.
int attempt_of_logs(const std::string& name);
std::filesystem::path agent_log(const RunDir& run, const std::string& node);
std::filesystem::path rank_log(const RunDir& run, int attempt, int rank);

}  // namespace holdfast::launcher
