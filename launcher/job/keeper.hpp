#pragma once
// `holdfast run`: on the batch host, for as long as the job lives. It writes down who is here, starts one
// agent step per node, starts it again when it ends too soon, and leaves with the run's exit code. It decides
// nothing about training.
#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// Inside an allocation. Throws Error before anything was started; afterwards returns the run's exit code, or
/// 128 + signal.
int keep(const RunDir& run, slurm::Cluster& cluster);

}  // namespace holdfast::launcher
