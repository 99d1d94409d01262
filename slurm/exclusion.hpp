#pragma once
// Back into the queue, for other nodes than those that have failed: users cannot drain a node, but a job can
// say where it does not want to run.
#include <string>
#include <vector>

#include "slurm/cluster.hpp"

namespace holdfast::slurm {

struct Exclusion {
  std::vector<std::string> nodes;  ///< the job's list from now on, in SLURM's order; empty: left as it is
  std::string why_not;             ///< nodes that were to be excluded are not, because ...; "": they are
};
/// The failed nodes beside those that the job's owner has excluded. None of them when a job of `wanted` nodes
/// could then never start: SLURM lets such a job wait for ever. Pure.
Exclusion exclusion(const Surroundings& around, const std::vector<std::string>& failed, int wanted);

/// Requeues a job of `wanted` nodes and, while it is pending, excludes what exclusion() says: of the nodes
/// that failed and those that are `doubtful` beside them, or, where that leaves too few, of those that failed
/// alone. Throws Error when the job could not be requeued; an exclusion that fails is a warning in the log.
void requeue_elsewhere(Cluster& cluster, JobId job, const std::vector<std::string>& failed, int wanted,
                       const std::vector<std::string>& doubtful = {});

/// What only an administrator may do, as a line to paste: "scontrol update nodename=dgx003 state=drain
/// reason='...'".
std::string drain_line(const std::string& node, const std::string& reason);

}  // namespace holdfast::slurm
