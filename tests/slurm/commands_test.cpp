#include "slurm/commands.hpp"

#include <gmock/gmock.h>

namespace holdfast::slurm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

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

}  // namespace
}  // namespace holdfast::slurm
