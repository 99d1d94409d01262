#pragma once
// Makes the batch job for SLURM from the settings. Pure.
#include <filesystem>
#include <string>

#include "slurm/batch_script.hpp"
#include "src/base/run_dir.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// `run` and `holdfast` (the program) are absolute paths. GPUs are asked for where the cluster file names a
/// GPU model; the whole node is asked for in any case. Throws Error (usage) for paths that SLURM cannot
/// use.
slurm::BatchJob batch_job(const config::RunConfig& config, const config::ClusterFacts& facts,
                          const RunDir& run, const std::filesystem::path& holdfast);

/// What the time limit means for the run. Throws Error (usage) where it leaves no time to train; returns a
/// warning where SLURM's notice has to be short, else "".
std::string check_time_limit(const config::RunConfig& config);

}  // namespace holdfast::launcher
