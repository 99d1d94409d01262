#pragma once
// How a run goes back into the queue, and what it takes from one job to the next.
//
// - Decided: the run ends with exit code 75. The leader says so in run_finished: by the policy (policy.hpp),
//   the end of a drain (drain.hpp), or a budget of the infrastructure (budget_table.hpp). Where there is no
//   leader to say so, the job monitor ends with 75: too few agents answer, or SLURM refuses every step.
// - For which nodes: those that have failed in the job are excluded, and so are those that fail again and
//   again, if there are enough others (unwanted_nodes() in node_record.hpp). An exclusion lasts for a day.
// - Done: by slurm::requeue_elsewhere() (slurm/requeue.hpp), which `holdfast run` calls at its end, and the
//   leader in its place once the batch host is lost (batch_script_fallback.hpp). A job that SLURM preempts it
//   requeues itself. Where `holdfast run` could not, the batch script asks again, and excludes no node.
#include <map>
#include <string>

#include "launcher/supervise/ledger.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"
#include "slurm/requeue.hpp"
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

/// Requeues the job; nodes that were excluded long ago (`own`) may be among its nodes again. Throws Error.
void requeue_job(const RunDir& run, slurm::Cluster& cluster, slurm::JobId job, const Roster& roster,
                 const std::string& ledger, const slurm::OwnExclusions& own);

}  // namespace holdfast::launcher
