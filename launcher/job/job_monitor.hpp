#pragma once
// `holdfast run`: runs on the batch host as long as the job. It writes the list of nodes, starts the
// agents by one step on all of them, and agents that are missing later by steps of their own, and ends with
// the run's exit code. It decides nothing about training.
#include <string>

#include "launcher/job/job_roster.hpp"
#include "launcher/job/preparation.hpp"
#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

struct RunState;

/// The name of an allocation, or of one try in it, in the event log: "JOB.RESTARTS", and for a run that is
/// started again in the same allocation after its outcome `before`, "JOB.RESTARTS.2" and so on: the event log
/// treats that as another allocation, in which an earlier outcome does not count. `again_by_hand`: not by the
/// batch script, which starts a killed job monitor again to read the outcome that it missed. Pure.
std::string allocation_name(slurm::JobId job, int restarts, bool again_by_hand, const RunState& before);

/// Seconds between updates of the job's comment; 0: it gets none. SLURM shows comments to everybody, so a run
/// whose directory is closed to its group gets none, whatever slurm.comment_s is (`asked_s`).
int comment_interval(const RunDir& run, int asked_s);

/// Runs a run that `holdfast submit` has set up, when its turn has come, inside an allocation, which `env`
/// describes. `facts`: of its cluster file. Throws Error before anything was started; afterwards returns the
/// run's exit code, or 128 + signal.
int monitor_job(const RunDir& run, config::ClusterFacts facts, slurm::Cluster& cluster,
                const slurm::JobEnv& env);
/// The same of a run that this process has set up, and planned for the nodes of `here`: the job owns the run
/// directory.
int monitor_job(const Preparation& prepared, const Allocation& here, slurm::Cluster& cluster,
                const slurm::JobEnv& env);

}  // namespace holdfast::launcher
