#pragma once
// Prepares a run: makes the files of its directory and its job from the settings.
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

/// Checks everything that can be checked without SLURM. `sbatch`: further flags of the job. Writes nothing.
/// Throws Error: usage, plan_impossible.
Preparation prepare(config::RunConfig config, const std::vector<std::string>& sbatch = {});

/// The plan as the run directory's group may read it: of variables that a user has set, only the names.
Plan plan_for_group(Plan plan, const config::Rank& rank);

/// Called by the job itself: takes the run directory, unless the job owns it already, and writes its files.
/// Throws Error as RunDirClaim does.
void take_run_dir(const Preparation& prepared, slurm::JobId job, slurm::Cluster& cluster);

}  // namespace holdfast::launcher
