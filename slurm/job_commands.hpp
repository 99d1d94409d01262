#pragma once
// What an owner may do to a job of his besides submitting and cancelling it: pure, as commands.hpp.
#include <string>
#include <vector>

#include "slurm/cluster.hpp"

namespace holdfast::slurm {

/// A signal ("USR1") for the batch script alone, as SLURM sends it before the time limit.
std::vector<std::string> signal_script_argv(JobId id, const std::string& signal);
/// A signal for every process of the job, script and steps, as SLURM sends it before it preempts.
std::vector<std::string> signal_all_argv(JobId id, const std::string& signal);
/// A pending job need not wait for its time any more (SLURM lets a job that was put back wait for two
/// minutes).
std::vector<std::string> start_now_argv(JobId id);

}  // namespace holdfast::slurm
