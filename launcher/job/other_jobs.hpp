#pragma once
// What a job owes to the jobs before and after it: the ledger of nodes, the administrator's lines, and the
// way back into the queue.
#include <map>
#include <string>

#include "launcher/supervise/ledger.hpp"
#include "launcher/supervise/roster.hpp"
#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// What earlier jobs have seen of these nodes; "": nothing. A ledger that cannot be read within seconds is a
/// warning: it must not keep the run from starting.
std::map<std::string, NodeHistory> histories(const std::string& folder, const Roster& roster);

/// What only an administrator can do about nodes that failed in this job (by its allocation_name()), in its
/// own log.
void print_admin_lines(const RunDir& run, const std::string& job);

/// Requeues the job for other nodes than those that have failed. The batch script would requeue it too, but
/// cannot say what is wrong with which node. Throws Error.
void back_into_the_queue(const RunDir& run, slurm::Cluster& cluster, slurm::JobId job, const Roster& roster,
                         const std::string& ledger);

}  // namespace holdfast::launcher
