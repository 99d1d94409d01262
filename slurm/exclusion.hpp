#pragma once
// Requeues a job with its failed nodes excluded: users cannot drain a node, but a job can exclude nodes.
#include <string>
#include <vector>

#include "slurm/cluster.hpp"

namespace holdfast::slurm {

struct Exclusion {
  std::vector<std::string> nodes;  ///< the new list of the job, in SLURM's order; empty: unchanged
  std::string why_not;             ///< why nodes were not excluded; "": they are excluded
};
/// The failed nodes and those that the job's owner has excluded. No failed node when a job of `wanted` nodes
/// could then never start: SLURM lets such a job wait forever. Pure.
Exclusion exclusion(const OtherNodes& around, const std::vector<std::string>& failed, int wanted);

/// Requeues a job of `wanted` nodes and, while it is pending, excludes nodes as exclusion() computes them:
/// the failed and the `doubtful` nodes, or only the failed ones when too few nodes would be left. Throws
/// Error when the job could not be requeued; an exclusion that fails is a warning in the log.
void requeue_elsewhere(Cluster& cluster, JobId job, const std::vector<std::string>& failed, int wanted,
                       const std::vector<std::string>& doubtful = {});

/// A command for an administrator, as a line to paste: "scontrol update nodename=dgx003 state=drain
/// reason='...'".
std::string drain_line(const std::string& node, const std::string& reason);

}  // namespace holdfast::slurm
