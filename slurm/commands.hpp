#pragma once
// The command lines of SLURM's tools: pure, one function per request. replies.hpp reads the replies.
//
// Formats are explicit and free text (names, reasons, paths) comes last, so that no part of it can be taken
// for a field. environment.hpp keeps variables away that would change a tool's output.
#include <filesystem>
#include <string>
#include <vector>

#include "slurm/cluster.hpp"

namespace holdfast::slurm {

std::vector<std::string> version_argv();                             ///< sinfo
std::vector<std::string> submit_argv(const Submission& submission);  ///< sbatch
std::vector<std::string> job_argv(JobId id);                         ///< squeue: see read_job
std::vector<std::string> task_argv(const std::string& name);         ///< squeue: see read_task, read_number
std::vector<std::string> scripts_argv();  ///< squeue: this user's jobs and their scripts
std::vector<std::string> nodes_argv(const std::vector<std::string>& names);  ///< sinfo
std::vector<std::string> cancel_argv(const JobName& job);                    ///< scancel
std::vector<std::string> own_jobs_argv();                                    ///< squeue: see read_own_jobs
std::vector<std::string> queued_job_argv(JobId id);       ///< the same of one job of anybody, ended or not
std::vector<std::string> steps_argv(const JobName& job);  ///< squeue: see read_steps_named
/// scancel: to every process of these steps ("17.3")
std::vector<std::string> signal_steps_argv(const std::vector<std::string>& steps, int signal);
/// scontrol: see read_processes
std::vector<std::string> processes_argv(JobId id, const std::string& node);
std::vector<std::string> requeue_argv(const JobName& job);  ///< scontrol
/// When SLURM began to preempt the job: seconds, or N/A.
std::vector<std::string> preemption_argv(const JobName& job);
std::vector<std::string> job_constraints_argv(const JobName& job);  ///< squeue: see read_job_constraints
/// sinfo: the nodes of one partition, in the format of nodes_argv
std::vector<std::string> partition_argv(const std::string& partition);
std::vector<std::string> details_argv(JobId id);  ///< scontrol: see read_gpus
/// scontrol
std::vector<std::string> wait_for_argv(const JobName& job, const JobName& other);
/// scontrol
std::vector<std::string> exclude_argv(const JobName& job, const std::vector<std::string>& nodes);
std::vector<std::string> comment_argv(const JobName& job);  ///< squeue: see read_comment
std::vector<std::string> set_comment_argv(const JobName& job, const std::string& text);  ///< scontrol
/// scontrol: for administrators
std::vector<std::string> drain_argv(const std::string& node, const std::string& reason);
std::vector<std::string> step_argv(const StepRequest& request);  ///< srun
std::vector<std::string> step_help_argv();                       ///< srun: its options, those of plug-ins too

/// A file name as sbatch and srun read it: '%' begins a replacement unless it is doubled.
std::string file_pattern(const std::filesystem::path& path);

}  // namespace holdfast::slurm
