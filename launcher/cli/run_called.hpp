#pragma once
// Which run a person means: its directory, or the number of its job.
#include <string>

#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// `word`: a run directory, or a job id, for which SLURM is asked. Throws Error (usage) when it is neither.
RunDir run_called(const std::string& word, slurm::Cluster& cluster);

}  // namespace holdfast::launcher
