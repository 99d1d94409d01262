#include "slurm/environment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "slurm/job_env.hpp"
#include "src/base/env.hpp"

namespace holdfast::slurm {
namespace {

using std::string_view;

/// How the tools find slurmctld, and authenticate: every tool needs them, wherever it runs.
constexpr auto of_the_installation =
    std::to_array<string_view>({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SACK_KEY",
                                "SLURM_SACK_JWKS", "SLURM_SACK_SOCKET"});

/// All else that sbatch reads changes what Holdfast needs: whole nodes with all CPUs, memory and GPUs, one
/// task each, a requeue, a signal, logs in the run directory, an answer at once. A variable of a later
/// release that is not here is left out, too.
constexpr auto for_sbatch = std::to_array<string_view>(
    {// Where.
     "SBATCH_PARTITION", "SBATCH_CONSTRAINT", "SBATCH_BATCH", "SBATCH_RESERVATION", "SBATCH_REQ_SWITCH",
     "SBATCH_WAIT4SWITCH", "SBATCH_SEGMENT_SIZE", "SBATCH_CONSOLIDATE_SEGMENTS", "SBATCH_SPREAD_SEGMENTS",
     "SBATCH_NETWORK", "SBATCH_DELAY_BOOT", "SBATCH_WAIT_ALL_NODES",
     // For whom, and how long.
     "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_WCKEY", "SBATCH_TIMELIMIT",
     // With what environment, as the option of that name.
     "SBATCH_EXPORT", "SBATCH_GET_USER_ENV",
     // What SLURM measures and saves.
     "SBATCH_ACCTG_FREQ", "SBATCH_PROFILE", "SBATCH_POWER", "SBATCH_GPU_FREQ",
     // Cores that a site keeps for its own processes.
     "SBATCH_CORE_SPEC", "SBATCH_THREAD_SPEC",
     // Variables of sbatch itself.
     "SBATCH_DEBUG", "SBATCH_IGNORE_PBS"});

/// Programs take the names of tasks, nodes and steps for a launch by srun, and then expect all of them: Open
/// MPI, PMIx and Hydra by SLURM_JOBID, SLURM_NODELIST and SLURM_STEP_ID; Lightning and OpenCLIP by
/// SLURM_NTASKS; timm by SLURM_PROCID; fairseq by SLURM_STEP_NODELIST. These name the job alone.
constexpr auto for_ranks = std::to_array<string_view>(
    {"SLURM_JOB_ID",          "SLURM_JOB_NAME",         "SLURM_JOB_PARTITION",  "SLURM_JOB_ACCOUNT",
     "SLURM_JOB_QOS",         "SLURM_JOB_USER",         "SLURM_JOB_UID",        "SLURM_JOB_GID",
     "SLURM_JOB_RESERVATION", "SLURM_JOB_START_TIME",   "SLURM_JOB_END_TIME",   "SLURM_CLUSTER_NAME",
     "SLURM_SUBMIT_DIR",      "SLURM_SUBMIT_HOST",      "SLURM_RESTART_COUNT",  "SLURM_ARRAY_JOB_ID",
     "SLURM_ARRAY_TASK_ID",   "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX",
     "SLURM_ARRAY_TASK_STEP", "SLURMD_NODENAME"});

/// The subset of these that slurmd gives to each step.
constexpr auto of_a_step = std::to_array<string_view>({"SLURM_JOB_ID", "SLURMD_NODENAME"});
/// srun calls the job of a step by the step's name: the job's own name comes to the ranks in this one.
constexpr const char* job_name_variable = "HOLDFAST_SLURM_JOB_NAME";

string_view name_in(string_view entry) { return entry.substr(0, entry.find('=')); }

template <std::size_t N>
bool among(const std::array<string_view, N>& names, string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// Ours without the variables of an enclosing job and step.
std::vector<std::string> without_place(std::vector<std::string> prefixes) {
  // PYXIS_CONTAINER_IMAGE would put the batch script into an image, where no step can be started.
  prefixes.insert(prefixes.begin(), {"SLURM_", "SLURMD_", "PMI_", "PMI2_", "PMIX_", "PYXIS_CONTAINER_",
                                     std::string(job_name_variable) + "="});
  std::vector<std::string> environment = env::without(prefixes);
  // PMIX_MCA_* of the caller are settings and do not belong to a step.
  for (auto& entry : env::all())
    if (entry.starts_with("PMIX_MCA_") || among(of_the_installation, name_in(entry)))
      environment.push_back(std::move(entry));
  return environment;
}

bool for_sbatch_alone(string_view name) { return name.starts_with("SBATCH_") || name == "SLURM_CLUSTERS"; }

}  // namespace

bool sbatch_reads(string_view name) { return among(for_sbatch, name); }

bool ranks_read(string_view name) { return among(for_ranks, name); }

std::vector<std::string> tool_environment() {
  auto environment =
      without_place({"SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SACCT_", "LC_ALL=", "LANGUAGE="});
  environment.insert(environment.end(), {"SLURM_TIME_FORMAT=%s", "LC_ALL=C"});
  return environment;
}

std::vector<std::string> job_environment() {
  auto environment = without_place({"SQUEUE_", "SCONTROL_", "SRUN_", "SBCAST_"});  // for tools of its script
  std::erase_if(environment, [](const std::string& entry) {
    return for_sbatch_alone(name_in(entry)) && !sbatch_reads(name_in(entry));
  });
  return environment;
}

std::vector<std::string> step_environment() {
  auto environment = without_place({"SRUN_"});
  for (auto& entry : env::all())
    if (entry.starts_with("SLURM_JOB_NAME="))
      environment.push_back(job_name_variable + entry.substr(entry.find('=')));
    else if (ranks_read(name_in(entry)) && !among(of_a_step, name_in(entry)))
      environment.push_back(std::move(entry));
  return environment;
}

std::vector<std::string> rank_environment() {
  std::vector<std::string> environment;
  const auto job_name = env::get(job_name_variable);
  for (auto& entry : env::all())
    if (ranks_read(name_in(entry)) && !(job_name && name_in(entry) == "SLURM_JOB_NAME"))
      environment.push_back(std::move(entry));
  if (job_name) environment.push_back("SLURM_JOB_NAME=" + *job_name);
  return environment;
}

std::string time_of_shell() { return env::get_or("SBATCH_TIMELIMIT", ""); }

std::string left_out_for_sbatch() {
  std::vector<std::string> names;
  for (const auto& entry : env::all())
    if (const auto name = name_in(entry); for_sbatch_alone(name) && !sbatch_reads(name))
      names.emplace_back(name);
  if (names.empty()) return "";
  std::ranges::sort(names);
  return fmt::format(
      "sbatch does not get {} of your shell: the job is as it was planned (behind '--' you may give options "
      "that Holdfast does not set itself)",
      fmt::join(names, ", "));
}

}  // namespace holdfast::slurm
