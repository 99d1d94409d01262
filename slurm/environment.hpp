#pragma once
// Which variables of the environment reach SLURM's tools, its jobs and the ranks. Each of SLURM's tools reads
// variables that change what it does or prints: a user's shell, a site's modules or an enclosing job sets
// them. What Holdfast has planned does not depend on them.
//
//   for             gets
//   a tool          our environment without variables of tools; times in Unix seconds, messages in English
//   sbatch          the same without those of an enclosing job or of tools in the script; of SBATCH_* only
//                   those that choose where, for whom and how long a job runs: the others win over #SBATCH
//                   lines of the script
//   srun            our environment without those of the enclosing step; the variables for ranks come along
//   a rank          of the SLURM_* of its agent's step, those that say which job this is
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::slurm {

/// For every tool but sbatch and srun.
std::vector<std::string> tool_environment();
/// For sbatch, which passes it to the job.
std::vector<std::string> job_environment();
/// For srun, which passes it to the step.
std::vector<std::string> step_environment();
/// "NAME=value" for ranks, from the environment of their agent.
std::vector<std::string> rank_environment();

/// May sbatch read this variable (SBATCH_*) of the user's shell? Pure.
bool sbatch_reads(std::string_view name);
/// May a rank have this variable (SLURM_*, SLURMD_*) of its agent? Pure.
bool ranks_read(std::string_view name);

/// The time limit that sbatch reads from the user's shell; "": none.
std::string time_of_shell();
/// Says which variables of the shell job_environment() leaves out although sbatch knows them; "": none.
std::string left_out_for_sbatch();

}  // namespace holdfast::slurm
