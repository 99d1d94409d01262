#include "slurm/commands.hpp"

#include <gmock/gmock.h>

#include "src/base/env.hpp"

namespace holdfast::slurm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

TEST(Commands, start_one_step_that_shares_no_fate) {
  StepRequest request;
  request.job = 17;
  request.nodes = {"dgx002"};
  request.command = {"/opt/hold fast", "agent", "$(touch /tmp/evaluated)"};
  request.output = "/run/100%/agent-dgx002.log";
  request.gpus = 8;
  request.options = {"--container-image=a b"};
  EXPECT_THAT(step_argv(request),
              ElementsAre("srun", "--jobid=17", "--nodelist=dgx002", "--nodes=1", "--ntasks=1",
                          "--ntasks-per-node=1", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0",
                          "--mem=0", "--cpu-bind=none", "--mpi=none", "--export=ALL", "--input=none",
                          "--quiet", "--job-name=agent", "--gres=gpu:8", "--open-mode=append",
                          "--output=/run/100%%/agent-dgx002.log", "--error=/run/100%%/agent-dgx002.log",
                          "--container-image=a b", "/opt/hold fast", "agent", "$(touch /tmp/evaluated)"));
}

TEST(Commands, start_one_step_on_many_nodes) {
  StepRequest request;
  request.job = 17;
  for (const char* node : {"dgx001", "dgx002", "dgx003"}) request.nodes.emplace_back(node);
  request.command = {"agent"};
  request.output = "/run/100%/agent-{node}.log";
  const auto argv = step_argv(request);
  for (const char* argument : {"--nodelist=dgx[001-003]", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1",
                               "--output=/run/100%%/agent-%N.log", "--error=/run/100%%/agent-%N.log"})
    EXPECT_THAT(argv, Contains(argument));
}

TEST(Commands, leave_out_what_a_step_does_not_ask_for) {
  StepRequest request;
  request.job = 17;
  request.nodes = {"dgx002"};
  request.command = {"true"};
  request.name = "";
  const auto argv = step_argv(request);
  EXPECT_EQ(argv.back(), "true");
  for (const auto& argument : argv)
    for (const char* absent : {"--gres", "--cpus-per-task", "--output", "--job-name", "--open-mode"})
      EXPECT_FALSE(argument.starts_with(absent));
  request.nodes = {"dgx[001-002]"};
  EXPECT_THROW(step_argv(request), std::logic_error);
  request.nodes = {"dgx001"};
  request.job = 0;
  EXPECT_THROW(step_argv(request), std::logic_error);
}

TEST(Commands, ask_in_formats_that_end_with_the_free_text) {
  EXPECT_THAT(job_argv(17), ElementsAre("squeue", "--noheader", "--all", "--states=all", "--jobs=17",
                                        "--format=%A|%T|%r|%N|%B|%e|%j"));
  EXPECT_THAT(scripts_argv(), ElementsAre("squeue", "--noheader", "--all", "--me", "--format=%A|%T|%o"));
  EXPECT_THAT(nodes_argv({"dgx001", "dgx002"}), ElementsAre("sinfo", "--noheader", "--all", "--Node",
                                                            "--nodes=dgx[001-002]", "--format=%N|%T|%o|%E"));
  EXPECT_THAT(details_argv(17), ElementsAre("scontrol", "--details", "show", "job", "17"));
}

TEST(Commands, submit_a_script_by_its_absolute_path) {
  EXPECT_THAT(submit_argv({"/run/job.sbatch", {"--job-name=a b"}}),
              ElementsAre("sbatch", "--parsable", "--job-name=a b", "/run/job.sbatch"));
  EXPECT_THROW(submit_argv({"-x", {}}), std::logic_error);
}

TEST(Commands, keep_the_users_habits_out_of_the_tools) {
  for (const char* name : {"SLURM_JOB_ID", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURMD_NODENAME",
                           "SQUEUE_FORMAT", "SINFO_FORMAT", "PMIX_RANK", "PMI_FD", "PYXIS_CONTAINER_IMAGE"})
    env::set(name, "habit");
  for (const char* name : {"SLURM_CONF", "SBATCH_ACCOUNT", "PMIX_MCA_gds", "HOME_OF_TEST"})
    env::set(name, "kept");
  env::set("SRUN_CPUS_PER_TASK", "1");
  const auto tools = tool_environment(), job = job_environment(), step = step_environment();
  EXPECT_THAT(job, Contains("SRUN_CPUS_PER_TASK=1")) << "of the job's own steps";
  EXPECT_THAT(step, Not(Contains("SRUN_CPUS_PER_TASK=1")));
  for (const auto& environment : {tools, job, step}) {
    for (const auto& entry : environment) EXPECT_THAT(entry, Not(::testing::HasSubstr("SLURM_JOB_ID")));
    for (const char* gone :
         {"SLURM_JOB_ID=habit", "SLURM_TIME_FORMAT=habit", "SLURM_CLUSTERS=habit", "SLURMD_NODENAME=habit",
          "PMIX_RANK=habit", "PMI_FD=habit", "PYXIS_CONTAINER_IMAGE=habit"})
      EXPECT_THAT(environment, Not(Contains(gone)));
    for (const char* kept :
         {"SLURM_CONF=kept", "SBATCH_ACCOUNT=kept", "PMIX_MCA_gds=kept", "HOME_OF_TEST=kept"})
      EXPECT_THAT(environment, Contains(kept));
  }
  EXPECT_THAT(tools, Not(Contains("SQUEUE_FORMAT=habit")));
  EXPECT_THAT(tools, Contains("SLURM_TIME_FORMAT=%s"));
  EXPECT_THAT(job, Not(Contains("LC_ALL=C"))) << "the job speaks the user's language";
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURMD_NODENAME", "SQUEUE_FORMAT",
        "SINFO_FORMAT", "PMIX_RANK", "PMI_FD", "PYXIS_CONTAINER_IMAGE", "SLURM_CONF", "SBATCH_ACCOUNT",
        "PMIX_MCA_gds", "HOME_OF_TEST", "SRUN_CPUS_PER_TASK"})
    ::unsetenv(name);
}

}  // namespace
}  // namespace holdfast::slurm
