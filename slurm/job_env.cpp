#include "slurm/job_env.hpp"

#include "slurm/asking.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"

namespace holdfast::slurm {
namespace {

std::int64_t counted(const char* name, std::int64_t fallback) {
  const auto value = env::get_integer(name);
  if (!value) return fallback;
  if (*value < 0)
    throw Error(Exit::usage, std::string("the environment variable ") + name + " is negative",
                "it is " + std::to_string(*value));
  return *value;
}

std::vector<std::string> gpus_named(const std::string& list) {
  std::vector<std::string> gpus;
  for (const auto number : split(list, ',')) {
    if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos) return {};
    gpus.emplace_back(number);
  }
  return gpus;
}

}  // namespace

bool inside_a_job() { return env::get("SLURM_JOB_ID").has_value(); }

JobEnv job_env() {
  if (!inside_a_job())
    throw Error(Exit::usage, "this is not a SLURM job", "SLURM_JOB_ID is not set",
                "Start it with 'holdfast submit'?");
  JobEnv here;
  here.job = counted("SLURM_JOB_ID", 0);
  if (here.job == 0)
    throw Error(Exit::usage, "the environment variable SLURM_JOB_ID names no job", "it is 0");
  if (const auto array = env::get_integer("SLURM_ARRAY_JOB_ID"),
      task = env::get_integer("SLURM_ARRAY_TASK_ID");
      array && task)
    here.task = JobName(*array, *task);
  here.components = static_cast<int>(counted("SLURM_HET_SIZE", 1));
  // The batch, extern and interactive steps have no number of their own; some versions give them one near
  // 2^32.
  here.interactive = env::get_integer("SLURM_STEP_ID") == 0xfffffffaL;
  if (const auto step = env::get_integer("SLURM_STEP_ID"); step && *step >= 0 && *step < 0xfffffff0L)
    here.step = *step;
  here.job_name = env::get_or("SLURM_JOB_NAME", "");
  here.nodes = expand(env::get("SLURM_JOB_NODELIST").value_or(env::get_or("SLURM_NODELIST", "")));
  here.node = env::get_or("SLURMD_NODENAME", "");
  here.restarts = static_cast<int>(counted("SLURM_RESTART_COUNT", 0));
  here.submit_dir = env::get_or("SLURM_SUBMIT_DIR", "");
  if (const auto end = env::get_integer("SLURM_JOB_END_TIME"); end && *end > 0)
    here.end_time = static_cast<double>(*end);
  here.procid = static_cast<int>(counted("SLURM_PROCID", 0));
  here.ntasks = here.step ? static_cast<int>(counted("SLURM_STEP_NUM_TASKS", counted("SLURM_NTASKS", 1))) : 1;
  if (env::get_or("CUDA_VISIBLE_DEVICES", "").find("MIG") == std::string::npos)
    here.gpus = gpus_named(env::get_or("SLURM_STEP_GPUS", env::get_or("SLURM_JOB_GPUS", "")));
  here.localid = static_cast<int>(counted("SLURM_LOCALID", 0));
  return here;
}

}  // namespace holdfast::slurm
