// A leader that is cut off, stopped, or takes over from another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::placement_of;
using testing::ElementsAre;
using testing::Not;

TEST(Supervisor, HalfIsEnough) {
  FakeCluster c({.slots = 1, .spares = 1});
  ASSERT_TRUE(c.training(1));
  c.kill(0);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n1"));
}

/// Fitness, numerics, suspicion, failures, budgets and pace: the next leader decides by them before it has
/// found out anything by itself.
TEST(Supervisor, TheNextLeaderKnowsWhatThisOneHasLearned) {
  using Found = control::NodeHealth::Fitness;
  FakeCluster c({.slots = 2, .spares = 4, .checkpoint_every = 1000000});
  ASSERT_TRUE(c.training(1));
  c.tell(2, [](Supervisor& s) { s.node_health(2, {Found::critical, "gpu.count: 7 of 8", "ab"}); });
  c.tell(3, [](Supervisor& s) { s.node_health(3, {Found::ok, "", "cd"}); });
  for (const int n : {0, 4, 5}) c.tell(n, [n](Supervisor& s) { s.node_health(n, {Found::ok, "", "ab"}); });
  for (int attempt = 2; attempt <= 3; ++attempt) {
    c.run(2);
    c.end_rank(0, attempt == 2 ? 137 : 1);  // of which the first is counted against its node
    ASSERT_TRUE(c.training(attempt));
  }
  c.kill(4);
  c.run(5);
  c.revive(4);
  ASSERT_TRUE(c.until([&] { return c.leader->state().suspects.contains("n4"); }, 20));
  const RunState before = c.leader->state();
  ASSERT_TRUE(before.failures.contains("n0"));
  ASSERT_TRUE(before.restarts > 0 && before.same_step_count > 0 && !before.pace.empty());
  c.new_leader(1);
  ASSERT_TRUE(c.until(Stage::running));
  const RunState& after = c.leader->state();
  EXPECT_EQ(after.failures, before.failures);
  EXPECT_EQ(after.suspects, before.suspects);
  EXPECT_EQ(after.pace, before.pace);
  EXPECT_EQ(after.restarts, before.restarts);
  EXPECT_EQ(after.same_step_count, before.same_step_count);
  EXPECT_EQ(after.same_error, before.same_error);
  EXPECT_EQ(after.no_progress, before.no_progress);
  c.kill(0);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 4; }, 20));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n5", "n1"))
      << "n2 is unfit, n3 computes other bits, n4 is a suspect";
}

/// The node of the leader before has been silent in its own term already: it is lost when all of it is too
/// long.
TEST(Supervisor, SilenceOfTheLeaderBeforeCountsAcrossTheTakeover) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  const double died = c.now;
  c.kill(0);
  c.run(1.5);
  c.new_leader(4);
  c.leader->last_leader_heard(0, died);
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.last("attempt_ended")["node"], "n0");
  const double lost = double(c.last("node_lost")["unix"]) - FakeCluster::unix_offset;
  EXPECT_NEAR(lost - died, 2, 0.2);
  EXPECT_NEAR(double(c.last("attempt_ended")["unix"]) - FakeCluster::unix_offset, lost, 0.2);
}

TEST(Supervisor, ALeaderThatWasReplacedIsNoLostNode) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  const double deposed = c.now;
  c.run(3);
  c.new_leader(4);
  c.leader->last_leader_heard(0, deposed);
  c.run(5);
  EXPECT_TRUE(c.all("node_lost").empty());
  EXPECT_EQ(c.leader->attempt(), 1);
}

TEST(Supervisor, AHangBeforeATakeoverIsFoundByTheNextLeader) {
  FakeCluster c;
  c.hung_phase = control::Phase::forward;
  ASSERT_TRUE(c.training(1));
  c.run(30);
  EXPECT_GE(c.all("pace").size(), 1u);
  EXPECT_LE(c.all("pace").size(), 3u) << "it does not change";
  c.rank(3).hangs = true;
  c.run(1);
  c.lose_leader();
  c.run(2.5);
  c.new_leader(4);
  const double led = c.now;
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2; }, 20));
  EXPECT_EQ(c.all("attempt_adopted").size(), 1u);
  const json ended = c.last("attempt_ended");
  EXPECT_EQ(ended["cause"], "rank hung");
  EXPECT_EQ(ended["rank"], 3);
  EXPECT_LE(double(ended["unix"]) - FakeCluster::unix_offset - double(ended["decided_s"]) - led, 5.2)
      << "5 s, and the first beat";
}

TEST(Supervisor, AHangBeforeATakeoverBeforeAnythingIsKnown) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.rank(3).hangs = true;
  c.lose_leader();
  c.run(2.5);
  c.new_leader(4);
  c.run(595);
  EXPECT_EQ(c.leader->attempt(), 1) << "step_s rules";
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.last("attempt_ended")["rank"], 3);
}

TEST(Supervisor, ARankThatIsStoppedOnTheLostLeadersNode) {
  // Its agent is a new process without any message of the rank.
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.run(30);
  c.rank(3).hangs = true;
  c.run(1);
  c.lose_leader();
  c.rank(3).step = -1;
  c.hung_phase = control::Phase::starting;
  c.waiting_phase = control::Phase::forward;  // of gathers that run beside
  c.run(2.5);
  c.new_leader(4);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2; }, 20));
  const json ended = c.last("attempt_ended");
  EXPECT_EQ(ended["rank"], 3);
  EXPECT_THAT(std::string(ended["evidence"][0]), testing::HasSubstr("process of rank 3 has not been heard"));
}

TEST(Supervisor, ARankThatIsStoppedBeforeItsAgentIsReplaced) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.run(30);
  c.rank(3).hangs = true;
  c.run(2);
  c.rank(3).step = -1;  // as its next agent knows it
  c.hung_phase = control::Phase::starting;
  c.restart_agent(1);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2; }, 20));
  EXPECT_EQ(c.last("attempt_ended")["rank"], 3);
}

TEST(Supervisor, NextLeaderDoesNotAdoptALostNode) {
  // The last leader wrote `node_lost` and died before it wrote `attempt_ended`; the node was only slow and is
  // back.
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.lose_leader();
  json lost = {{"event", "node_lost"}, {"node", "n1"}, {"unix", c.now + FakeCluster::unix_offset}};
  c.events.push_back(lost);
  c.agent(1).clears = false;
  c.new_leader(4);
  ASSERT_TRUE(c.training(2));
  EXPECT_TRUE(c.all("attempt_adopted").empty());
  EXPECT_THAT(placement_of(c.last("attempt_planned")), Not(testing::Contains("n1")));
}

TEST(Supervisor, NodeThatDiesWhileTheNextLeaderGathers) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.lose_leader();
  c.cut(2);
  c.new_leader(4);
  c.run(0.3);
  c.kill(0);  // heard once, then silent, ...
  c.run(1.4);
  EXPECT_TRUE(c.all("node_lost").empty());
  c.agent(2).ranks.clear();
  c.revive(2);  // ... and lost only when the other one is back, without its ranks
  ASSERT_TRUE(c.training(2));
  EXPECT_TRUE(c.all("attempt_adopted").empty());
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n4", "n1", "n2"));
}

TEST(Supervisor, NextLeaderEndsARunWhoseRanksHaveAllFinished) {
  FakeCluster c({.steps = 5});
  ASSERT_TRUE(c.until(Stage::running));
  c.lose_leader();
  c.run(3);  // the ranks finish
  c.new_leader(4);
  c.run(2);
  EXPECT_EQ(c.exit_code, 0);
  EXPECT_EQ(c.result()["attempts"].size(), 1u);
  EXPECT_EQ(c.result()["final_step"], 5);
}

TEST(Supervisor, NextLeaderHearsOfARankThatHasDied) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.lose_leader();
  c.end_rank(4, 93);
  c.new_leader(4);
  c.run(5);
  EXPECT_EQ(c.exit_code, 93);
}

TEST(Supervisor, NextLeaderTellsTheOutcomeThatTheLastOneWrote) {
  FakeCluster c({.steps = 5});
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 20));
  c.exit_code.reset();
  c.new_leader(4);
  c.run(0.1);
  EXPECT_EQ(c.exit_code, 0);
  EXPECT_EQ(c.stage(), Stage::over);
  EXPECT_EQ(c.all("run_finished").size(), 1u);
}

/// The run was told to end, and did its last step meanwhile. It has no second end when that time is over.
TEST(Supervisor, AnOutcomeOnRecordIsTheOnlyOne) {
  FakeCluster c({.drain_s = 5});
  ASSERT_TRUE(c.training(1));
  c.setup.steps = 0;  // the next one is the last
  c.tell(0, [](Supervisor& s) { s.drain(test::sigterm); });
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 20));
  ASSERT_EQ(c.exit_code, 0);
  c.run(6);
  c.exit_code.reset();
  c.new_leader(4);
  c.run(0.1);
  EXPECT_EQ(c.exit_code, 0);
  EXPECT_EQ(c.all("run_finished").size(), 1u);
}

TEST(Supervisor, LeaderStoppedWhileItWaitsForAnswers) {
  FakeCluster clearing;
  clearing.agent(1).clears = false;
  ASSERT_TRUE(clearing.until(Stage::clearing));
  clearing.tell(1, [](Supervisor& s) { s.cleared(1, 1); });
  clearing.leader_stopped_for(20);
  ASSERT_TRUE(clearing.training(1));
  EXPECT_TRUE(clearing.all("node_lost").empty());

  FakeCluster starting;
  starting.agent(1).starts = false;
  ASSERT_TRUE(starting.until(Stage::starting));
  starting.leader_stopped_for(90);
  for (const int rank : {2, 3}) starting.tell(1, [rank](Supervisor& s) { s.rank_started(1, {rank, 1, 1}); });
  starting.run(0.2);
  EXPECT_EQ(starting.stage(), Stage::running);

  FakeCluster gathering;
  for (const int n : {1, 2}) gathering.agent(n).up = false;
  gathering.run(1);
  gathering.leader_stopped_for(90);
  gathering.revive(1), gathering.revive(2);
  ASSERT_TRUE(gathering.training(1));
  EXPECT_TRUE(gathering.all("node_lost").empty());
}

/// Whether messages that have waited are read before the next tick, or after it, or both do some of it.
TEST(Supervisor, AStallMovesADeadlineOnce) {
  const std::vector<std::vector<double>> stalls = {{60}, {0.9, 30, 0.9, 29}, std::vector<double>(100, 0.6)};
  for (const auto& gaps : stalls) {
    test::Shape shape;
    shape.limits.start_s = 20;
    FakeCluster c(shape);
    c.agent(1).starts = false;
    ASSERT_TRUE(c.until(Stage::starting));
    c.run(5);
    for (const double gap : gaps) c.leader->at(c.now += gap);
    c.run(14);
    EXPECT_EQ(c.stage(), Stage::starting) << gaps.size();
    c.run(2);
    EXPECT_EQ(c.last("attempt_ended").value("cause", ""), "ranks did not start") << gaps.size();
    EXPECT_TRUE(c.all("node_lost").empty());
  }
}

}  // namespace
}  // namespace holdfast::launcher
