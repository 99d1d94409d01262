// Agents that are silent: the node is lost only when nothing else shows that it lives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/supervise/life_signs.hpp"
#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using test::FakeCluster;
using testing::HasSubstr;

constexpr int for_ever = 100000;  // steps

double silent_s(const FakeCluster& c) { return c.last("node_lost").at("silent_s"); }

TEST(SupervisorSilence, AnAgentThatStandsStillEndsNoAttempt) {
  for (const double seconds : {1, 2, 5, 20}) {
    FakeCluster c({.steps = for_ever});
    ASSERT_TRUE(c.training(1));
    c.agent(1).beats = false;
    c.run(seconds);
    c.agent(1).beats = true;
    c.run(3);
    EXPECT_TRUE(c.all("node_lost").empty()) << seconds;
    EXPECT_EQ(c.leader->attempt(), 1);
    EXPECT_EQ(c.stage(), Stage::running);
  }
}

TEST(SupervisorSilence, ANodeThatDiesIsLostAsSoonAsBefore) {
  FakeCluster c({.steps = for_ever});
  ASSERT_TRUE(c.training(1));
  c.run(5);
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  EXPECT_LE(silent_s(c), 1e-3 * c.setup.limits.node_silence_ms + 2 * FakeCluster::tick_s);
}

/// Programs that report no steps: the kernel alone shows that the node lives.
TEST(SupervisorSilence, AKernelShowsThatItsNodeLivesUntilAnotherAgentShouldBeThere) {
  FakeCluster c({.reports = false});
  ASSERT_TRUE(c.until(Stage::running));
  c.agent(1).beats = false;
  c.run(stuck_node_s - 1);
  EXPECT_TRUE(c.all("node_lost").empty());
  c.run(2);
  ASSERT_EQ(c.all("node_lost").size(), 1u);
  EXPECT_THAT(std::string(c.last("node_lost")["evidence"]), HasSubstr("its kernel has answered 0.0 s ago"));
}

TEST(SupervisorSilence, AKernelShowsNothingWhenRanksFail) {
  FakeCluster c({.steps = for_ever});
  ASSERT_TRUE(c.training(1));
  c.agent(1).beats = false;
  c.run(1);
  c.end_rank(0, 1);  // as if its peer had gone
  c.run(3);
  ASSERT_EQ(c.all("node_lost").size(), 1u);
  EXPECT_EQ(c.last("attempt_ended").at("cause"), "node lost");
}

/// A spare is lost and comes back while its connection holds, and nothing else happens.
TEST(SupervisorSilence, ASpareThatAnswersAgainIsASpareAgain) {
  FakeCluster c({.steps = for_ever});
  ASSERT_TRUE(c.training(1));
  c.agent(4).beats = c.agent(4).kernel_answers = false;
  c.run(5);
  ASSERT_EQ(c.all("node_lost").size(), 1u);
  c.agent(4).beats = true;
  c.run(3);
  EXPECT_EQ(c.all("node_returned").size(), 1u);
  EXPECT_EQ(c.leader->attempt(), 1);
}

/// The node of the leader before: its agent stands still, and its ranks go on.
TEST(SupervisorSilence, ANewLeaderWaitsForTheAgentThatStandsStill) {
  FakeCluster c({.steps = for_ever});
  ASSERT_TRUE(c.training(1));
  c.agent(0).beats = false;
  c.new_leader(4);
  c.run(5);
  EXPECT_EQ(c.stage(), Stage::gathering);
  EXPECT_TRUE(c.all("node_lost").empty());
  c.agent(0).beats = true;
  c.run(1);
  EXPECT_EQ(c.stage(), Stage::running);
  EXPECT_EQ(c.all("attempt_adopted").size(), 1u);
  EXPECT_EQ(c.leader->attempt(), 1);
}

/// Steps of a minute: the ranks go on, and no step is over in the time that an agent may be silent.
TEST(SupervisorSilence, LongStepsLeaveTheKernelAlone) {
  for (const bool kernel : {true, false}) {
    FakeCluster c({.steps = for_ever});
    ASSERT_TRUE(c.training(1));
    c.rank(0).hangs = true;  // all wait for a rank that takes its time
    c.run(4);
    c.agent(1).beats = false;
    c.agent(1).kernel_answers = kernel;
    c.run(3);
    EXPECT_EQ(c.all("node_lost").size(), kernel ? 0u : 1u);
  }
}

}  // namespace
}  // namespace holdfast::launcher
