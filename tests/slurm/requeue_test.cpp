#include "slurm/requeue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "slurm/commands.hpp"
#include "slurm/replies.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

OtherNodes around(const std::string& hostlist, std::vector<std::string> excluded = {}) {
  OtherNodes out{std::move(excluded), {{}}};
  for (const auto& name : expand(hostlist)) out.partitions.front().push_back({name, name, "idle", "", true});
  return out;
}

TEST(Exclusion, AddsToWhatTheOwnerHasExcluded) {
  const auto change = exclusion(around("n[1-9]", {"n7"}), {"n2", "n7"}, 4);
  EXPECT_THAT(change.nodes, ElementsAre("n7", "n2"));
  EXPECT_EQ(change.why_not, "");
  EXPECT_FALSE(exclusion(around("n[1-9]", {"n7"}), {"n7"}, 4).changes) << "nothing new";
}

TEST(Exclusion, NeverMakesAJobWaitForEver) {
  EXPECT_THAT(exclusion(around("n[1-5]"), {"n2"}, 4).nodes, ElementsAre("n2"));
  const auto change = exclusion(around("n[1-4]"), {"n2"}, 4);
  EXPECT_THAT(change.nodes, IsEmpty());
  EXPECT_THAT(change.why_not, HasSubstr("only 3 others"));
  auto half_down = around("n[1-8]");
  for (std::size_t i = 4; i < 8; ++i) half_down.partitions.front()[i].usable = false;
  EXPECT_THAT(exclusion(half_down, {"n2"}, 4).nodes, IsEmpty());
  auto two = around("n[1-5]");
  two.partitions.push_back(around("n[2-4],n[6-7]").partitions.front());
  EXPECT_THAT(exclusion(two, {"n2"}, 4).nodes, ElementsAre("n2")) << "both have 4 others";
  EXPECT_THAT(exclusion(two, {"n2", "n3"}, 4).nodes, IsEmpty()) << "5 others, but no partition has 4 of them";
}

TEST(Exclusion, FollowsTheRequeue) {
  FakeCluster cluster("n[1-8]");
  cluster.add_job(7, "job", "n[1-4]");
  requeue_elsewhere(cluster, 7, {4, {"n3"}});
  EXPECT_THAT(cluster.requeued, ElementsAre(7));
  EXPECT_THAT(cluster.excluded[7], ElementsAre("n3"));
  FakeCluster small("n[1-4]");
  small.add_job(7, "job", "n[1-4]");
  requeue_elsewhere(small, 7, {4, {"n3"}});
  EXPECT_THAT(small.requeued, ElementsAre(7)) << "all the same";
  EXPECT_THAT(small.excluded[7], IsEmpty());
}

TEST(Exclusion, AJobThatSlurmPreemptsIsNotRequeuedTwice) {
  FakeCluster cluster("n[1-8]");
  cluster.add_job(7, "job", "n[1-4]");
  cluster.preempted = {7};
  requeue_elsewhere(cluster, 7, {4, {"n3"}});
  EXPECT_THAT(cluster.requeued, IsEmpty());
}

TEST(Exclusion, WhereNodesAreShortOnlyThoseThatFailedStayOut) {
  FakeCluster roomy("n[1-8]"), tight("n[1-5]");
  for (FakeCluster* cluster : {&roomy, &tight}) {
    cluster->add_job(7, "job", "n[1-4]");
    requeue_elsewhere(*cluster, 7, {4, {"n3"}, {"n1"}});
  }
  EXPECT_THAT(roomy.excluded[7], ElementsAre("n3", "n1"));
  EXPECT_THAT(tight.excluded[7], ElementsAre("n3"));
}

TEST(Exclusion, EndsAfterADay) {
  const double now = 1e9;
  // n7 is the owner's; n1 was excluded before, n2 at the last requeue, and n3 was to be, but SLURM has not.
  const auto own =
      own_exclusions({{"n1", now - exclusion_s}, {"n9", 1}}, {"n7", "n1", "n2"}, {"n2", "n3"}, now);
  EXPECT_THAT(own, testing::ElementsAre(testing::Pair("n1", now - exclusion_s), testing::Pair("n2", now)));
  EXPECT_THAT(expired(own, now), ElementsAre("n1"));
  EXPECT_THAT(expired(own, now - 1), IsEmpty());
  const auto change = exclusion(around("n[1-9]", {"n7", "n1", "n2"}), {}, 4, {"n1"});
  EXPECT_TRUE(change.changes);
  EXPECT_THAT(change.nodes, ElementsAre("n7", "n2"));
  EXPECT_THAT(exclusion(around("n[1-9]", {"n1"}), {"n1"}, 4, {"n1"}).nodes, ElementsAre("n1"))
      << "it has failed again";
  FakeCluster cluster("n[1-8]");
  cluster.add_job(7, "job", "n[2-5]");
  cluster.excluded[7] = {"n1"};
  requeue_elsewhere(cluster, 7, {4, {}, {}, {"n1"}});
  EXPECT_THAT(cluster.requeued, ElementsAre(7));
  EXPECT_THAT(cluster.excluded[7], IsEmpty());
}

TEST(Exclusion, IsRememberedForOneJob) {
  const auto file = std::filesystem::temp_directory_path() / ("excluded-" + std::to_string(::getpid()));
  EXPECT_THAT(read_exclusions(file, 7), IsEmpty());
  write_exclusions(file, 7, {{"n1", 5.5}});
  EXPECT_THAT(read_exclusions(file, 7), testing::ElementsAre(testing::Pair("n1", 5.5)));
  EXPECT_THAT(read_exclusions(file, 8), IsEmpty());
  std::filesystem::remove(file);
}

TEST(Exclusion, CommandsAndReplies) {
  EXPECT_THAT(exclude_argv(7, {"n3", "n4"}),
              ElementsAre("scontrol", "update", "JobId=7", "ExcNodeList=n[3-4]"));
  EXPECT_THAT(partition_argv("a"),
              ElementsAre("sinfo", "--noheader", "--Node", "--partition=a", "--format=%N|%T|%o|%E"));
  const auto constraints = read_job_constraints("defq|dgx[003-004]\n");
  ASSERT_TRUE(constraints);
  EXPECT_THAT(constraints->partitions, ElementsAre("defq"));
  EXPECT_THAT(read_job_constraints("a,b|\n")->partitions, ElementsAre("a", "b"));
  EXPECT_THAT(constraints->excluded, ElementsAre("dgx003", "dgx004"));
  EXPECT_THAT(read_job_constraints("defq|\n")->excluded, IsEmpty());
  EXPECT_FALSE(read_job_constraints("\n"));
  EXPECT_THROW(read_job_constraints("defq"), Error);
}

TEST(Exclusion, TheDrainLineIsOneWordForAShell) {
  EXPECT_EQ(drain_line("dgx003", "gpu (Xid 79)"),
            "scontrol update nodename=dgx003 state=drain 'reason=holdfast: gpu (Xid 79)'");
}

}  // namespace
}  // namespace holdfast::slurm
