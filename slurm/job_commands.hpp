#pragma once
// Commands for the owner of a job besides submitting and cancelling: pure, as commands.hpp.
#include <string>
#include <vector>

#include "slurm/cluster.hpp"

namespace holdfast::slurm {

/// A signal ("USR1") for the batch script alone, as SLURM sends it before the time limit.
std::vector<std::string> signal_script_argv(JobId id, const std::string& signal);
/// A signal for every process of the job, script and steps, as SLURM sends it before it preempts.
std::vector<std::string> signal_all_argv(JobId id, const std::string& signal);
/// Lets a pending job start at once (SLURM delays a requeued job by two minutes).
std::vector<std::string> start_now_argv(JobId id);

}  // namespace holdfast::slurm
