#pragma once
// The nodes of a job, as SLURM reports them, and the roster of agents made of them.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/plan.hpp"
#include "launcher/supervise/roster.hpp"
#include "slurm/cluster.hpp"
#include "slurm/job_env.hpp"

namespace holdfast::launcher {

struct Allocation {
  std::vector<std::string> nodes;
  std::string batch_host;
  std::optional<double> end_time;  ///< Unix seconds; nothing: there is no limit, or it is not known
};
/// As SLURM reports them now; if it does not answer, those of the job's start (the variables may be stale,
/// but a node where no agent can be started counts as lost).
Allocation allocation(slurm::Cluster& cluster, const slurm::JobEnv& env);

/// The GPUs that SLURM gave the job, which may be more than it asked for: all of a node for an exclusive job.
std::map<std::string, int> gpus_of(slurm::Cluster& cluster, slurm::JobId job);

/// `port`: of supervise.port; 0: one that is free of other uses on this machine. Names of nodes are looked up
/// here, for nodes that cannot resolve the name of another.
Roster make_roster(const Plan& plan, slurm::Cluster& cluster, slurm::JobId job, int port);

}  // namespace holdfast::launcher
