// The rows of the supervisor's table, one by one, in a simulated cluster: runs without faults, and nodes
// that are lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using test::FakeCluster;
using test::placement_of;
using testing::ElementsAre;
using testing::IsEmpty;

// Runs without faults.

TEST(Supervisor, GoesThroughItsStages) {
  FakeCluster c;
  EXPECT_EQ(c.stage(), Stage::gathering);
  c.agent(1).up = c.agent(0).clears = false;
  c.run(5);
  EXPECT_EQ(c.stage(), Stage::gathering) << "n1 has not called home";
  c.revive(1);
  c.run(0.1);
  EXPECT_EQ(c.stage(), Stage::clearing);
  c.run(5);
  EXPECT_EQ(c.stage(), Stage::clearing) << "n0 has not cleared";
  c.agent(2).starts = false;
  c.tell(0, [](Supervisor& s) { s.cleared(0, 1); });
  c.run(0.1);
  EXPECT_EQ(c.stage(), Stage::starting);
  c.run(5);
  EXPECT_EQ(c.stage(), Stage::starting) << "n2's ranks are missing";
  for (const int rank : {4, 5}) c.tell(2, [rank](Supervisor& s) { s.rank_started(2, {rank, 1, 1}); });
  c.run(0.1);
  EXPECT_EQ(c.stage(), Stage::running);
}

TEST(Supervisor,
     NoFinalStateIsNoFailure) {  // `[rank] command` may be a program that knows nothing of Holdfast
  FakeCluster c;
  ASSERT_TRUE(c.until(Stage::running));
  for (int rank = 0; rank < 6; ++rank) c.end_rank(rank, 0);
  c.run(1);
  EXPECT_EQ(c.exit_code, 0);
  EXPECT_EQ(c.result()["final_step"], nullptr);
}

// Nodes.

TEST(Supervisor, NodeLostWhileItsRanksAreBeingStarted) {
  FakeCluster c;
  c.agent(2).starts = false;
  ASSERT_TRUE(c.until(Stage::starting));
  c.kill(2);
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.result()["attempts"][0]["cause"], "node lost");
  EXPECT_EQ(c.result()["attempts"][0]["node"], "n2");
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n4"));
}

TEST(Supervisor, NodeLostWhileOldRanksAreBeingEnded) {
  FakeCluster c;
  c.agent(0).clears = false;
  ASSERT_TRUE(c.until(Stage::clearing));
  c.kill(0);
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.result()["attempts"][0]["node"], "n0");
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n4", "n1", "n2"));
}

TEST(Supervisor, OneOfTwoNodesIsHalf) {
  for (const int slots : {1, 2}) {
    FakeCluster c({.slots = slots, .spares = 1});
    ASSERT_TRUE(c.training(1));
    c.agent(0).clears = false;
    c.end_rank(0, 1);
    c.run(300);
    EXPECT_EQ(c.stage(), Stage::clearing);
    EXPECT_THAT(c.all("node_lost"), IsEmpty());
  }
}

TEST(Supervisor, SpareThatDiesWithItsNeighbourIsNotTaken) {
  // One switch cuts off an active node and the spare next to it: both are silent, one a little longer than
  // the other.
  FakeCluster c({.slots = 3, .spares = 3, .units = {"A", "A", "B", "B", "A", "B"}});
  ASSERT_TRUE(c.training(1));
  c.kill(0);
  c.run(0.1);
  c.kill(4);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n5", "n1", "n2"));
}

TEST(Supervisor, LostSpareDisturbsNobody) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.kill(4);
  c.run(5);
  EXPECT_EQ(c.last("node_lost")["node"], "n4");
  EXPECT_EQ(c.last("node_lost")["slot"], nullptr);
  EXPECT_EQ(c.leader->attempt(), 1);
  EXPECT_EQ(c.stage(), Stage::running);
}

TEST(Supervisor, SpareNeverHeardOfIsNotChosen) {
  FakeCluster c({.slots = 3, .spares = 3});
  c.agent(4).up = false;  // best by its number, but nobody has seen it
  ASSERT_TRUE(c.training(1));
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n5", "n2"));
}

TEST(Supervisor, NodeThatDiesBeforeTheFirstAttempt) {
  FakeCluster c({.slots = 3, .spares = 3});
  c.agent(0).up = c.agent(4).up = false;
  c.run(1);
  c.kill(1);
  c.run(3);
  c.revive(0);
  ASSERT_TRUE(c.training(1));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n5", "n2"))
      << "n4 has never been heard of";
}

TEST(Supervisor, AgentThatIsReplacedQuicklyDisturbsNobody) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.restart_agent(1);
  c.run(5);
  EXPECT_EQ(c.leader->attempt(), 1);
  EXPECT_EQ(c.stage(), Stage::running);
}

}  // namespace
}  // namespace holdfast::launcher
