#include "slurm/environment.hpp"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <map>
#include <string>

#include "src/base/env.hpp"

namespace holdfast::slurm {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// Variables for the length of a test.
class Environment : public ::testing::Test {
 protected:
  ~Environment() override {
    for (const auto& [name, before] : before_)
      before ? env::set(name.c_str(), *before) : static_cast<void>(::unsetenv(name.c_str()));
  }
  void set(const std::string& name, const std::string& value) {
    before_.try_emplace(name, env::get(name.c_str()));
    env::set(name.c_str(), value);
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(Environment, keeps_the_users_habits_out_of_the_tools) {
  for (const char* name : {"SLURM_JOB_ID", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURMD_NODENAME",
                           "SQUEUE_FORMAT", "SINFO_FORMAT", "PMIX_RANK", "PMI_FD", "PYXIS_CONTAINER_IMAGE"})
    set(name, "habit");
  for (const char* name : {"SLURM_CONF", "SLURM_JWT", "SBATCH_ACCOUNT", "PMIX_MCA_gds", "HOME_OF_TEST"})
    set(name, "kept");
  set("SRUN_CPUS_PER_TASK", "1");
  const auto tools = tool_environment(), job = job_environment(), step = step_environment();
  for (const auto& environment : {job, step}) EXPECT_THAT(environment, Not(Contains("SRUN_CPUS_PER_TASK=1")));
  for (const auto& environment : {tools, job}) EXPECT_THAT(environment, Not(Contains("SQUEUE_FORMAT=habit")));
  for (const auto& environment : {tools, job, step}) {
    for (const auto& entry : environment) EXPECT_THAT(entry, Not(HasSubstr("SLURM_JOB_ID")));
    for (const char* gone :
         {"SLURM_JOB_ID=habit", "SLURM_TIME_FORMAT=habit", "SLURM_CLUSTERS=habit", "SLURMD_NODENAME=habit",
          "PMIX_RANK=habit", "PMI_FD=habit", "PYXIS_CONTAINER_IMAGE=habit"})
      EXPECT_THAT(environment, Not(Contains(gone)));
    for (const char* kept : {"SLURM_CONF=kept", "SLURM_JWT=kept", "SBATCH_ACCOUNT=kept", "PMIX_MCA_gds=kept",
                             "HOME_OF_TEST=kept"})
      EXPECT_THAT(environment, Contains(kept));
  }
  EXPECT_THAT(tools, Contains("SLURM_TIME_FORMAT=%s"));
  EXPECT_THAT(job, Not(Contains("LC_ALL=C"))) << "the job speaks the user's language";
}

TEST_F(Environment, lets_no_variable_change_the_job_that_was_planned) {
  const char* changing[] = {"SBATCH_NO_REQUEUE",    "SBATCH_REQUEUE",
                            "SBATCH_NO_KILL",       "SBATCH_MEM_PER_NODE",
                            "SBATCH_MEM_PER_CPU",   "SBATCH_MEM_PER_GPU",
                            "SBATCH_ERROR",         "SBATCH_OUTPUT",
                            "SBATCH_INPUT",         "SBATCH_WAIT",
                            "SBATCH_EXCLUSIVE",     "SBATCH_SIGNAL",
                            "SBATCH_OPEN_MODE",     "SBATCH_ARRAY_INX",
                            "SBATCH_CLUSTERS",      "SLURM_CLUSTERS",
                            "SBATCH_JOB_NAME",      "SBATCH_GPUS",
                            "SBATCH_GPUS_PER_NODE", "SBATCH_GRES",
                            "SBATCH_CPUS_PER_GPU",  "SBATCH_OVERCOMMIT",
                            "SBATCH_SPREAD_JOB",    "SBATCH_DISTRIBUTION",
                            "SBATCH_HINT",          "SBATCH_THREADS_PER_CORE",
                            "SBATCH_CONTAINER",     "SBATCH_USE_MIN_NODES",
                            "SBATCH_TRES_PER_TASK", "SBATCH_OF_A_LATER_RELEASE"};
  for (const char* name : changing) set(name, "x");
  for (const char* name : {"SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_TIMELIMIT", "SBATCH_EXPORT"})
    set(name, "kept");
  const auto job = job_environment();
  const std::string said = left_out_for_sbatch();
  for (const char* name : changing) {
    EXPECT_THAT(job, Not(Contains(std::string(name) + "=x")));
    EXPECT_THAT(said, HasSubstr(name));
  }
  for (const char* name : {"SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_TIMELIMIT", "SBATCH_EXPORT"}) {
    EXPECT_THAT(job, Contains(std::string(name) + "=kept"));
    EXPECT_THAT(said, Not(HasSubstr(name)));
  }
}

TEST_F(Environment, says_nothing_where_nothing_is_left_out) {
  set("SBATCH_ACCOUNT", "physics");
  EXPECT_EQ(left_out_for_sbatch(), "");
}

TEST_F(Environment, tells_ranks_which_job_they_are_and_nothing_of_its_steps) {
  // As slurmd sets them for the batch script, from where they go to a step by srun.
  set("SLURM_JOB_ID", "17");
  set("SLURM_JOB_NAME", "sweep");
  set("SLURM_ARRAY_JOB_ID", "15");
  set("SLURM_ARRAY_TASK_ID", "2");
  set("SLURM_RESTART_COUNT", "1");
  set("SLURM_NTASKS", "3");
  const auto step = step_environment();
  EXPECT_THAT(step, AllOf(Contains("SLURM_ARRAY_JOB_ID=15"), Contains("SLURM_ARRAY_TASK_ID=2"),
                          Contains("SLURM_RESTART_COUNT=1")));
  EXPECT_THAT(step, Not(Contains("SLURM_JOB_NAME=sweep"))) << "srun has a name for the step";
  EXPECT_THAT(step, Not(Contains("SLURM_NTASKS=3")));
  // What the step has then, as 22.05 sets it.
  for (const auto& entry : step) set(entry.substr(0, entry.find('=')), entry.substr(entry.find('=') + 1));
  set("SLURM_JOB_NAME", "agent");
  const char* of_steps[] = {"SLURM_JOBID",    "SLURM_NODELIST",      "SLURM_JOB_NODELIST",
                            "SLURM_NTASKS",   "SLURM_NPROCS",        "SLURM_PROCID",
                            "SLURM_LOCALID",  "SLURM_STEP_ID",       "SLURM_STEPID",
                            "SLURM_NODEID",   "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES",
                            "SLURM_NNODES",   "SLURM_JOB_NUM_NODES", "SLURM_TASKS_PER_NODE",
                            "SLURM_GTIDS",    "SLURM_MPI_TYPE",      "SLURM_PMIXP_ABORT_AGENT_PORT",
                            "SLURM_CPU_BIND", "SLURM_DISTRIBUTION",  "SLURM_LAUNCH_NODE_IPADDR"};
  for (const char* name : of_steps) set(name, "1");
  const auto rank = rank_environment();
  for (const char* entry : {"SLURM_JOB_ID=17", "SLURM_JOB_NAME=sweep", "SLURM_ARRAY_JOB_ID=15",
                            "SLURM_ARRAY_TASK_ID=2", "SLURM_RESTART_COUNT=1"})
    EXPECT_THAT(rank, Contains(entry));
  for (const char* name : of_steps) EXPECT_THAT(rank, Not(Contains(std::string(name) + "=1")));
}

}  // namespace
}  // namespace holdfast::slurm
