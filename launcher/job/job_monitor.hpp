#pragma once
// `holdfast run`: on the batch host, for as long as the job lives. It writes down who is here, starts one
// agent step per node, starts it again when it ends too soon, and leaves with the run's exit code. It decides
// nothing about training.
#include <string>

#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

struct RunState;

/// What tells one allocation, or one try in it, from the others in the event log: "JOB.RESTARTS", and for a
/// run that is started again in the same one after its outcome `before`, "JOB.RESTARTS.2" and so on: to the
/// log that is another allocation, which an earlier outcome does not bind. `again_by_hand`: not by the batch
/// script, which starts a killed job monitor again to read the outcome that it missed. Pure.
std::string allocation_name(slurm::JobId job, int restarts, bool again_by_hand, const RunState& before);

/// Inside an allocation. Throws Error before anything was started; afterwards returns the run's exit code, or
/// 128 + signal.
int monitor_job(const RunDir& run, slurm::Cluster& cluster);

}  // namespace holdfast::launcher
