// The rows of the supervisor's table, one by one, in a simulated cluster: runs without faults, and nodes
// that are lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::placement_of;
using test::Shape;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Runs without faults.

TEST(Supervisor, LivesToTheEnd) {
  FakeCluster c({.steps = 25});
  bool clear_before_launch = false;
  c.on_launch = [&](const Launch& what) {
    clear_before_launch = true;
    for (const int n : what.placement) EXPECT_EQ(c.agent(n).attempt, what.attempt);
  };
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 20));
  EXPECT_EQ(c.exit_code, 0);
  EXPECT_TRUE(clear_before_launch);
  EXPECT_THAT(c.event_kinds(),
              ElementsAre("leader_elected", "attempt_planned", "attempt_started", "placement_verified",
                          "restored", "first_step", "final_state", "attempt_ended", "run_finished"));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n2"));
  const json result = c.result();
  EXPECT_EQ(result["status"], "done");
  EXPECT_EQ(result["exit_code"], 0);
  EXPECT_EQ(result["final_step"], 25);
  EXPECT_EQ(result["tokens"], 2500);
  EXPECT_EQ(result["final_loss"], 2.5);
  EXPECT_EQ(result["state_digest"], "00000000000000ab");
  EXPECT_EQ(result["durable_step"], 20);
  EXPECT_EQ(result["attempts"][0]["cause"], "finished");
  EXPECT_EQ(result["attempts"][0]["restored_from"]["level"], "fresh");
  EXPECT_GT(result["goodput"], 0.5);
  EXPECT_EQ(result, result_of(c.leader->state()));
}

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

TEST(Supervisor, DoneWhenEveryRankHasEndedWell) {
  FakeCluster c({.steps = 5});
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 20));
  EXPECT_EQ(c.exit_code, 0);
  EXPECT_EQ(c.result()["attempts"].size(), 1u);
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

TEST(Supervisor, SilentNodeGivesItsSlotToASpare) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.run(1.7);
  const auto before = c.rank(0).step;
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(
      c.event_kinds(),
      ElementsAre("leader_elected", "attempt_planned", "attempt_started", "placement_verified", "restored",
                  "first_step", "node_lost", "attempt_ended", "spare_promoted", "attempt_planned",
                  "attempt_started", "placement_verified", "restored", "first_step"));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2"))
      << "n3 is the batch host: last choice";
  EXPECT_EQ(c.last("spare_promoted")["slot"], 1);
  EXPECT_EQ(c.last("spare_promoted")["from"], "n1");
  const json result = c.result(), first = result["attempts"][0];
  EXPECT_EQ(first["cause"], "node lost");
  EXPECT_EQ(first["node"], "n1");
  EXPECT_GT(first["detected_s"], 1.9);
  EXPECT_LT(first["detected_s"], 2.3);
  EXPECT_LT(first["recovered_s"], 1.0);
  EXPECT_EQ(first["last_step"], before);
  EXPECT_EQ(first["lost_steps"], before - 10) << "step 10 was durable";
  EXPECT_EQ(result["attempts"][1]["restored_from"]["step"], 10);
  EXPECT_EQ(result, result_of(c.leader->state()));
}

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

TEST(Supervisor, NodeThatCannotEndItsOldRanksIsGivenUpAndMayReturn) {
  FakeCluster c;
  c.agent(0).clears = false;
  ASSERT_TRUE(c.until(Stage::clearing));
  c.tell(0, [](Supervisor& s) { s.processes_left(0, {1, "rank 0 waits in the kernel"}); });
  c.run(59);
  EXPECT_EQ(c.leader->attempt(), 1);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(std::string(c.last("node_lost")["evidence"]),
              HasSubstr("within 60 s: rank 0 waits in the kernel"));
  EXPECT_THAT(std::string(c.last("node_lost")["evidence"]), HasSubstr("n0 could not end its old ranks"));
  EXPECT_TRUE(c.leader->state().lost.contains("n0"));
  c.tell(0, [](Supervisor& s) { s.cleared(0, 2); });
  c.run(0.2);
  EXPECT_FALSE(c.leader->state().lost.contains("n0"));
  EXPECT_TRUE(c.leader->state().suspects.contains("n0"));
}

/// Ranks that wait for a file system which does not answer cannot be killed.
class OldRanksStay : public testing::Test {
 protected:
  /// Ranks of `many` of the nodes with slots stay when the first attempt ends.
  void stay(int many) {
    ASSERT_TRUE(c.training(1));
    for (int n = 0; n < many; ++n) c.agent(n).clears = false;
    c.end_rank(2 * many - 1, 1);
    ASSERT_TRUE(c.until(Stage::clearing));
    for (int n = 0; n < many; ++n)
      c.tell(n, [n](Supervisor& s) {
        s.processes_left(n, {2, "rank 1 waits in the kernel in write of /data"});
      });
  }
  void end(int n) { c.agent(n).clears = true, c.restart_agent(n); }
  FakeCluster c{{.slots = 4, .spares = 2}};
};

TEST_F(OldRanksStay, NoNodeIsBlamedWhileHalfOfThemOrMoreAreSlow) {
  stay(3);
  c.run(59);
  EXPECT_THAT(c.all("old_ranks_remain"), IsEmpty());
  c.run(200);
  ASSERT_EQ(c.all("old_ranks_remain").size(), 1u);
  EXPECT_EQ(c.last("old_ranks_remain")["nodes"], (FakeCluster::json{"n0", "n1", "n2"}));
  EXPECT_EQ(
      c.last("old_ranks_remain")["evidence"],
      "old ranks have not ended on 3 of 4 nodes (n0, n1, n2); on n0: rank 1 waits in the kernel in write of "
      "/data");
  EXPECT_THAT(c.leader->state().attempts.back().waits_for, HasSubstr("3 of 4 nodes"));
  for (const int n : {0, 1, 2}) end(n), c.run(10);  // one after another
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.leader->state().attempts.back().waits_for, "");
  EXPECT_THAT(c.all("node_lost"), IsEmpty());
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n2", "n3"));
}

TEST_F(OldRanksStay, TheLastNodeIsBlamedWhenItAloneStaysSlow) {
  stay(2);
  c.run(100);
  EXPECT_THAT(c.all("node_lost"), IsEmpty());
  end(0);
  c.run(59);
  EXPECT_THAT(c.all("node_lost"), IsEmpty());
  ASSERT_TRUE(c.training(3));
  EXPECT_EQ(c.last("node_lost")["node"], "n1");
}

TEST_F(OldRanksStay, TheJobGoesBackIntoTheQueueWhenTheInfrastructureHasHadItsTime) {
  stay(4);
  c.run(590);
  EXPECT_FALSE(c.exit_code);
  c.run(15);
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_THAT(c.all("node_lost"), IsEmpty());
  const auto ended = c.last("attempt_ended");
  EXPECT_EQ(ended["cause"], "old ranks remain");
  EXPECT_EQ(ended["kind"], "infrastructure");
  EXPECT_EQ(ended["blamed"], false);
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("old ranks have not ended on 4 of 4 nodes"));
}

TEST_F(OldRanksStay, TheNextLeaderCountsOn) {
  stay(4);
  c.run(300);
  c.new_leader(5);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 3 && c.stage() == Stage::clearing; }, 10));
  c.run(280);
  EXPECT_FALSE(c.exit_code);
  EXPECT_EQ(c.all("old_ranks_remain").size(), 2u) << "of each attempt";
  c.run(30);
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_THAT(c.all("node_lost"), IsEmpty());
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

TEST(Supervisor, TwoNodesAtOnce) {
  FakeCluster c({.slots = 3, .spares = 3});
  ASSERT_TRUE(c.training(1));
  c.kill(0), c.kill(1);
  ASSERT_TRUE(c.until([&] { return c.leader->state().lost.size() == 2 && c.stage() == Stage::running; }, 20));
  EXPECT_THAT(placement_of(c.last("attempt_planned")),
              testing::AnyOf(ElementsAre("n4", "n5", "n2"), ElementsAre("n5", "n4", "n2")));
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

TEST(Supervisor, ReturnedNodeIsASuspectSpare) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  c.revive(1);
  c.run(0.5);
  EXPECT_EQ(c.last("node_returned")["node"], "n1");
  EXPECT_FALSE(c.leader->state().lost.contains("n1"));
  EXPECT_TRUE(c.leader->state().suspects.contains("n1"));
  EXPECT_EQ(c.leader->attempt(), 2) << "its return disturbs nobody";
  c.kill(2);
  ASSERT_TRUE(c.training(3));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n3"))
      << "a suspect comes after the batch host";
  c.kill(4);
  ASSERT_TRUE(c.training(4));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n3"))
      << "nothing else is left";
}

TEST(Supervisor, LostSpareWithTheLeaderEndsNothing) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.kill(3);
  c.new_leader(0);
  c.run(5);
  EXPECT_EQ(c.last("node_lost")["node"], "n3");
  EXPECT_EQ(c.leader->attempt(), 1);
  EXPECT_EQ(c.all("attempt_adopted").size(), 1u);
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

TEST(Supervisor, NoSpareLeft) {
  for (const auto when_short : {config::WhenShort::automatic, config::WhenShort::stop}) {
    Shape setup{.slots = 4, .spares = 1};
    setup.limits.when_short = when_short;
    FakeCluster c(setup);
    ASSERT_TRUE(c.training(1));
    c.kill(0);
    ASSERT_TRUE(c.training(2));
    c.kill(1);
    c.run(5);
    const bool stop = when_short == config::WhenShort::stop;
    EXPECT_EQ(c.exit_code, stop ? 5 : 75);
    EXPECT_EQ(c.result()["status"], stop ? "out_of_spares" : "requeued");
    EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("no heartbeat of n1"));
    if (stop)
      EXPECT_TRUE(c.result()["exclude"].empty());
    else
      EXPECT_THAT(c.result()["exclude"].get<std::vector<std::string>>(), ElementsAre("n0", "n1"));
  }
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

TEST(Supervisor, AgentsThatNeverComeAreReplacedAfterTheStartLimit) {
  FakeCluster c;
  c.agent(1).up = false;
  c.run(59);
  EXPECT_EQ(c.stage(), Stage::gathering);
  ASSERT_TRUE(c.training(1));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2"));
  EXPECT_THAT(std::string(c.last("node_lost")["evidence"]), HasSubstr("no agent has answered on n1"));
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
