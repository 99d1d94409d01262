#pragma once
// A job among the jobs before and after it: the ledger of nodes, commands for the administrator, and
// requeueing.
#include <map>
#include <string>

#include "launcher/supervise/ledger.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"
#include "slurm/cluster.hpp"
#include "slurm/exclusion.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// Failures of these nodes in earlier jobs, from the ledger; `folder` "": none. A ledger that cannot be read
/// within seconds is only a warning: it must not keep the run from starting.
std::map<std::string, NodeHistory> histories(const std::string& folder, const Roster& roster);

/// Writes the commands for the administrator about nodes that failed in this job (`job`: its
/// allocation_name()) to the log.
void print_admin_lines(const RunDir& run, const std::string& job);

/// The nodes that Holdfast has excluded for this job, when it begins again; keeps them in the run directory.
/// `before`: the run at the end of its last allocation. None when SLURM does not answer.
slurm::OwnExclusions exclusions_of(const RunDir& run, slurm::Cluster& cluster, slurm::JobId job,
                                   const RunState& before, const std::map<std::string, NodeHistory>& past);

/// Requeues the job for other nodes than those that have failed; nodes that were excluded long ago (`own`)
/// may be among them again. The batch script would requeue it too, but cannot exclude nodes. Throws Error.
void requeue_job(const RunDir& run, slurm::Cluster& cluster, slurm::JobId job, const Roster& roster,
                 const std::string& ledger, const slurm::OwnExclusions& own);

}  // namespace holdfast::launcher
