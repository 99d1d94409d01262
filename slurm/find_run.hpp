#pragma once
// Finds the run that a user names: by its directory, by its name in runs/, or by its job ("17", or "15_2" for
// a task of an array).
#include <optional>
#include <string>

#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::slurm {

/// It may be the id of a job, about which SLURM is asked.
bool may_be_job(const std::string& word);

/// `word`: a run directory, or the name of one in runs/; nothing when it is neither. Throws Error (usage)
/// where this user may not read it.
std::optional<RunDir> run_called(const std::string& word);
/// The same, or a job id, for which SLURM is asked: the run whose script the job has; else, as in a script of
/// one's own, the run here or in runs/ that the job owns. Throws Error (usage) when it is none of these.
RunDir find_run(const std::string& word, Cluster& cluster);

}  // namespace holdfast::slurm
