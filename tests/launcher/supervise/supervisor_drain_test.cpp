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

TEST(Drain, WrongSettingsAreStillWrong) {
  FakeCluster c({.save_s = 20});
  ASSERT_TRUE(c.training(1));
  ask(c, sigterm);
  c.run(0.2);
  c.end_rank(1, 93);
  ASSERT_TRUE(over(c, 5));
  EXPECT_EQ(c.exit_code, 93);
}

// The batch host.

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
