#pragma once
// A run before it is anybody's: from the settings to all that its directory and its job will be.
#include "launcher/job/run_dir_setup.hpp"
#include "launcher/plan/plan.hpp"
#include "slurm/cluster.hpp"

namespace holdfast::launcher {

struct Preparation {
  RunDir run;
  RunFiles files;
  Plan plan;                     ///< for nodes as the cluster file describes them
  slurm::Submission submission;  ///< the job that would be submitted
};

/// Checks everything that can be checked without asking anybody. `sbatch`: further flags of the job. Nothing
/// is written. Throws Error: usage, plan_impossible.
Preparation prepare(config::RunConfig config, const std::vector<std::string>& sbatch = {});

/// For the job itself: takes the run directory, unless it has it already, and writes its files. Throws Error
/// as RunDirClaim does.
void move_in(const Preparation& prepared, slurm::JobId job, slurm::Cluster& cluster);

}  // namespace holdfast::launcher
