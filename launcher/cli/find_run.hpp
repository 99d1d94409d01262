#pragma once
// Finds the run that a user names: by its directory, by its name in runs/, or by the number of its job.
#include <string>

#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// It may be the id of a job, about which SLURM is asked.
bool may_be_job(const std::string& word);

/// `word`: a run directory, the name of one in runs/, or a job id, for which SLURM is asked. Throws Error
/// (usage) when it is neither.
RunDir find_run(const std::string& word, slurm::Cluster& cluster);

}  // namespace holdfast::launcher
