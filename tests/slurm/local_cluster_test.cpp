#include "slurm/local_cluster.hpp"

#include <gmock/gmock.h>
#include <signal.h>

#include "src/base/env.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::slurm {
namespace {

using test::refusal_of;

TEST(LocalCluster, HasOneNodeAndOneJob) {
  LocalCluster here;
  const std::string node = LocalCluster::node_name();
  const auto job = here.job(17, default_limit);
  ASSERT_TRUE(job);
  EXPECT_TRUE(job->alive());
  EXPECT_THAT(job->nodes, testing::ElementsAre(node));
  EXPECT_FALSE(job->end_time) << "nobody ends it";
  const auto nodes = here.nodes({node}, default_limit);
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes.front().address, "127.0.0.1");
  EXPECT_EQ(refusal_of([&] { (void)here.nodes({"elsewhere"}, default_limit); }).exit, Exit::usage);
}

TEST(LocalCluster, IsNotABatchScript) {
  const auto env = LocalCluster::job_env(17);
  EXPECT_EQ(env.job, 17);
  EXPECT_FALSE(env.in_batch_script()) << "nobody would start it again";
}

TEST(LocalCluster, RefusesWhatOnlyAQueueCanDo) {
  LocalCluster here;
  EXPECT_EQ(refusal_of([&] { here.requeue(17, default_limit); }).exit, Exit::impossible);
  EXPECT_EQ(refusal_of([&] { (void)here.submit({}, default_limit); }).exit, Exit::impossible);
}

TEST(LocalCluster, StartsItsAgentWithoutTheVariablesOfAJobAround) {
  env::set("SLURM_JOB_ID", "42");
  StepRequest step;
  step.command = {"holdfast", "agent", "run"};
  const Command command = LocalCluster().step_command(step);
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(command.argv, step.command);
  EXPECT_EQ(command.when_parent_ends, SIGTERM);
  ASSERT_TRUE(command.environment);
  EXPECT_THAT(*command.environment, testing::Not(testing::Contains(testing::StartsWith("SLURM"))));
}

}  // namespace
}  // namespace holdfast::slurm
