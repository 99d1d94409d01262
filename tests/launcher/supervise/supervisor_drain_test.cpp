// Drains: which events cause one, which ranks get it, and how the run ends after it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using control::Drain;
using nlohmann::json;
using test::FakeCluster;
using test::sigterm;
using testing::HasSubstr;
using testing::Not;

void ask(FakeCluster& c, const Drain& what, int node = 0) {
  c.tell(node, [what](Supervisor& s) { s.drain(what); });
}
std::string why(const FakeCluster& c) { return c.result()["why"]; }

TEST(Drain, SavesAndEndsTheRun) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.run(1.3);
  ask(c, sigterm);
  ASSERT_TRUE(over(c, 3));
  const json result = c.result(), only = result["attempts"][0];
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(result["status"], "drained");
  EXPECT_EQ(why(c), "SIGTERM");
  EXPECT_EQ(only["cause"], "drained");
  EXPECT_EQ(only["last_step"], c.durable);
  EXPECT_GT(c.durable, 10) << "further than the last periodic checkpoint";
  EXPECT_EQ(result["durable_step"], c.durable);
  EXPECT_EQ(c.all("drain").size(), 1u);
}

TEST(Drain, TheNextJobLosesNothing) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  ask(c, sigterm);
  ASSERT_TRUE(over(c, 5));
  const auto step = c.durable;
  c.exit_code.reset();
  c.roster.job = "7.1";
  for (int n = 0; n < 5; ++n) c.kill(n), c.revive(n);
  c.new_leader(3);
  ASSERT_TRUE(c.training(2));
  EXPECT_FALSE(c.leader->state().drain) << "of another job";
  EXPECT_FALSE(c.leader->state().outcome);
  EXPECT_EQ(c.result()["attempts"][1]["restored_from"]["step"], step);
  EXPECT_EQ(c.result()["attempts"][0]["lost_steps"], 0);
}

TEST(Drain, EverybodyAsksAndOneIsEnough) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  for (int n = 0; n < 5; ++n) ask(c, sigterm, n), ask(c, {true, "SIGUSR1"}, n), ask(c, {false, "x"}, n);
  ASSERT_TRUE(over(c, 3));
  EXPECT_EQ(c.all("drain").size(), 1u);
}

TEST(Drain, NothingToSaveEndsAtOnce) {
  FakeCluster before_anything;
  before_anything.agent(1).up = false;
  before_anything.run(1);
  ask(before_anything, sigterm);
  ASSERT_TRUE(over(before_anything, 0.3));
  EXPECT_EQ(before_anything.exit_code, 75);
  EXPECT_EQ(before_anything.result()["attempts"].size(), 0u);
}

TEST(Drain, ASaveThatTakesTooLongIsNotWaitedFor) {
  FakeCluster c({.drain_s = 5, .save_s = 60});
  ASSERT_TRUE(c.training(1));
  c.run(1.3);
  ask(c, sigterm);
  EXPECT_FALSE(over(c, 4.5));
  ASSERT_TRUE(over(c, 1));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_THAT(why(c), HasSubstr("steps " + std::to_string(c.durable + 1) + " to "));
  EXPECT_THAT(why(c), HasSubstr("have to be done again"));
}

TEST(Drain, SilenceOfHungRanksIsNotWaitedFor) {
  FakeCluster c({.drain_s = 5});
  ASSERT_TRUE(c.training(1));
  c.rank(2).hangs = true;
  ask(c, sigterm);
  ASSERT_TRUE(over(c, 5.5));
  EXPECT_EQ(c.exit_code, 75);
}

TEST(Drain, TheEndOfTheLastStepIsAnEndLikeAnyOther) {
  FakeCluster c({.steps = 12, .save_s = 0});
  ASSERT_TRUE(c.training(1));
  ASSERT_TRUE(c.until([&] { return c.reached == 11; }, 5));
  ask(c, sigterm);
  ASSERT_TRUE(over(c, 5));
  EXPECT_EQ(c.exit_code, 0);
  EXPECT_EQ(c.result()["status"], "done");
}

// SLURM may send its signal to the ranks, too, and a node may be lost at the same time.

TEST(Drain, RanksThatDieOfItAreStartedAgainToSaveWhatTheLocalLevelHas) {
  FakeCluster c({.local = true});
  ASSERT_TRUE(c.training(1));
  c.run(1.3);
  const auto step = c.reached;
  c.end_rank(3, 143);
  ask(c, sigterm);
  ASSERT_TRUE(over(c, 10));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_GE(c.durable, step);
  EXPECT_EQ(c.result()["attempts"].size(), 2u);
  EXPECT_EQ(c.result()["attempts"][1]["restored_from"]["level"], "local");
  EXPECT_EQ(c.result()["attempts"][0]["lost_steps"], 0);
  EXPECT_EQ(why(c), "SIGTERM");
}

TEST(Drain, RanksThatDieWithNothingNewerThanTheCheckpointStayDead) {
  FakeCluster c({.steps = 1000000, .checkpoint_every = 1});
  ASSERT_TRUE(c.training(1));
  ask(c, sigterm);
  c.end_rank(3, 143);
  ASSERT_TRUE(over(c, 3));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.result()["attempts"].size(), 1u);
}

TEST(Drain, OutOfSparesIsNoReasonToStayAway) {
  FakeCluster c({.slots = 4, .spares = 0, .save_s = 20});
  ASSERT_TRUE(c.training(1));
  c.run(1.3);
  ask(c, sigterm);
  c.run(0.5);
  c.kill(2);
  ASSERT_TRUE(over(c, 10));
  EXPECT_EQ(c.exit_code, 75) << "the next job has other nodes";
}

TEST(Drain, WrongSettingsAreStillWrong) {
  FakeCluster c({.save_s = 20});
  ASSERT_TRUE(c.training(1));
  ask(c, sigterm);
  c.run(0.2);
  c.end_rank(1, 93);
  ASSERT_TRUE(over(c, 5));
  EXPECT_EQ(c.exit_code, 93);
}

TEST(Drain, OutlivesTheLeaderThatHeardOfIt) {
  FakeCluster c({.save_s = 4});
  ASSERT_TRUE(c.training(1));
  ask(c, sigterm);
  c.run(0.5);
  c.new_leader(1);
  ASSERT_TRUE(over(c, 10));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.all("drain").size(), 1u);
  EXPECT_EQ(c.result()["attempts"].size(), 1u);
  EXPECT_EQ(why(c), "SIGTERM");
}

TEST(Drain, ARankThatEndsWithThatCodeUnasked) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.end_rank(1, 75);
  ASSERT_TRUE(c.training(2)) << "a failure like another";
  EXPECT_EQ(c.result()["attempts"][0]["cause"], "rank failed");
}

// The batch host.

TEST(Drain, LossOfTheBatchHostSavesAtOnceAndGoesOn) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.new_leader(0);
  c.run(1.2);
  const auto checkpoints = c.all("checkpoint_durable").size();
  const auto step = c.reached;
  c.run(0.05 * static_cast<double>(10 - step % 10));  // not where a periodic one is due
  c.kill(3);
  ASSERT_TRUE(c.until([&] { return !c.all("drain").empty(); }, 5));
  EXPECT_EQ(c.last("drain")["stop"], false);
  EXPECT_THAT(std::string(c.last("drain")["reason"]), HasSubstr("batch host"));
  const std::int64_t then = c.last("drain")["step"];
  ASSERT_TRUE(c.until([&] { return !c.leader->state().drain; }, 3));
  EXPECT_GT(c.all("checkpoint_durable").size(), checkpoints);
  EXPECT_GE(c.leader->state().durable_step, then);
  c.run(5);
  EXPECT_FALSE(c.exit_code);
  EXPECT_EQ(c.all("drain").size(), 1u);
}

TEST(Drain, LossOfABatchHostThatTrainsIsMadeGoodFirst) {
  FakeCluster c({.slots = 3, .spares = 2, .local = true});
  c.roster.batch_host = 1;
  c.new_leader(0);
  ASSERT_TRUE(c.training(1));
  c.run(1.3);
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  ASSERT_TRUE(c.until([&] { return !c.leader->state().drain; }, 3)) << "the new attempt was told";
  EXPECT_GE(c.durable, c.last("drain")["step"].get<std::int64_t>());
}

TEST(Drain, StopIsMoreThanSave) {
  FakeCluster c({.save_s = 3});
  ASSERT_TRUE(c.training(1));
  ask(c, {false, "the batch host was lost"});
  c.run(0.5);
  ask(c, {true, "the time limit is near"});
  ASSERT_TRUE(over(c, 10));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.all("drain").size(), 2u);
  EXPECT_THAT(why(c), Not(HasSubstr("batch host")));
}

TEST(Drain, AnOlderCheckpointDoesNotSettleIt) {
  RunState state;
  const auto apply = [&](const json& event) { launcher::apply(state, test::entry(event)); };
  apply({{"event", "attempt_planned"}, {"attempt", 1}});
  apply({{"event", "drain"}, {"stop", false}, {"reason", "x"}, {"step", 17}, {"unix", 5.0}});
  apply({{"event", "checkpoint_durable"}, {"attempt", 1}, {"step", 10}});  // it was on its way
  ASSERT_TRUE(state.drain);
  EXPECT_EQ(state.drain->at, 5.0);
  apply({{"event", "checkpoint_dropped"}, {"attempt", 1}, {"step", 18}});
  EXPECT_TRUE(state.drain);
  apply({{"event", "checkpoint_durable"}, {"attempt", 1}, {"step", 19}});
  EXPECT_FALSE(state.drain);
  EXPECT_EQ(state.commit_outcomes, (std::map<std::int64_t, bool>{{10, true}, {18, false}, {19, true}}));
  apply({{"event", "attempt_planned"}, {"attempt", 2}});
  apply({{"event", "checkpoint_durable"}, {"attempt", 1}, {"step", 20}});
  EXPECT_TRUE(state.commit_outcomes.empty()) << "of the last attempt alone";
  EXPECT_EQ(state.durable_step, 20);
}

}  // namespace
}  // namespace holdfast::launcher
