// Who replaces whom, and what the result says of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::Shape;
using testing::ElementsAre;

// Who replaces whom (policy).

Roster two_units() {
  Shape setup{.slots = 3, .spares = 5, .units = {"A", "B", "B", "A", "A", "B", "B", "A"}};
  return test::roster_of(setup);  // batch host: n3, in A
}

TEST(Policy, BestSpare) {
  const Roster roster = two_units();
  RunState state;
  const std::vector<int> placement = {0, 1, 2};
  EXPECT_EQ(best_spare(roster, state, placement, 0), 4) << "same unit first, but not the batch host";
  EXPECT_EQ(best_spare(roster, state, placement, 1), 5);
  EXPECT_EQ(best_spare(roster, state, placement, -1), 4) << "nobody in particular: by order";
  state.lost = {"n4"}, state.suspects = {"n5"};
  EXPECT_EQ(best_spare(roster, state, placement, 0), 7);
  EXPECT_EQ(best_spare(roster, state, placement, 1), 6);
  state.lost = {"n4", "n7"};
  EXPECT_EQ(best_spare(roster, state, placement, 0), 6) << "another unit before the batch host";
  state.lost = {"n4", "n6", "n7"};
  EXPECT_EQ(best_spare(roster, state, placement, 0), 3) << "the batch host before a suspect";
  state.lost = {"n3", "n4", "n6", "n7"};
  EXPECT_EQ(best_spare(roster, state, placement, 0), 5) << "a suspect is better than nothing";
  state.lost.insert("n5");
  EXPECT_EQ(best_spare(roster, state, placement, 0), -1);
}

TEST(Policy, FillTakesDifferentSparesForDifferentSlots) {
  const Roster roster = two_units();
  RunState state;
  state.lost = {"n0", "n1", "n2"};
  Decision decision;
  const auto filled = fill(roster, state, {0, 1, 2}, decision);
  ASSERT_TRUE(filled);
  EXPECT_THAT(*filled, ElementsAre(4, 5, 6));
  state.lost = {"n0", "n1", "n2", "n4", "n5", "n6"};
  EXPECT_FALSE(fill(roster, state, {0, 1, 2}, decision)) << "two spares for three slots";
}

TEST(Policy, EveryFailureHasAName) {
  for (int kind = 0; kind <= static_cast<int>(Failure::Kind::leader_changed); ++kind)
    EXPECT_STRNE(name_of(static_cast<Failure::Kind>(kind)), "");
  for (int stage = 0; stage <= static_cast<int>(Stage::over); ++stage)
    EXPECT_STRNE(name_of(static_cast<Stage>(stage)), "");
}

// What the result says.

TEST(Result, TwoFailuresBeforeTheNextStep) {
  // The second attempt dies before it restores anything: what was lost belongs to the first, and it took
  // until the third.
  FakeCluster c({.slots = 3, .spares = 3});
  ASSERT_TRUE(c.until([&] { return c.stage() == Stage::running && c.rank(0).step == 17; }, 20));
  c.agent(4).starts = false;
  c.kill(0);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2 && c.stage() == Stage::starting; }, 20));
  c.kill(4);
  ASSERT_TRUE(c.training(3));
  const json attempts = c.result()["attempts"];
  EXPECT_EQ(attempts[0]["last_step"], 17);
  EXPECT_EQ(attempts[0]["lost_steps"], 7);
  EXPECT_GT(attempts[0]["recovered_s"], attempts[1]["recovered_s"]);
  EXPECT_GT(attempts[0]["recovered_s"], 2.0) << "the second node's silence is part of it";
  EXPECT_EQ(attempts[1]["restored_from"], nullptr);
  EXPECT_EQ(attempts[1]["lost_steps"], 0);
  EXPECT_EQ(attempts[2]["restored_from"]["step"], 10);
}

TEST(Result, NewAllocationForgetsTheOldNodes) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  c.end_rank(0, 2);
  c.run(2);
  ASSERT_EQ(c.exit_code, 2);
  c.exit_code.reset();
  c.roster.job = "7.1";  // requeued
  for (int n = 0; n < 5; ++n) c.kill(n), c.revive(n);
  c.new_leader(3);
  EXPECT_TRUE(c.leader->state().lost.empty());
  EXPECT_TRUE(c.leader->state().suspects.empty());
  ASSERT_TRUE(c.training(3));
  EXPECT_EQ(c.result()["status"], "running");
}

TEST(Result, AttemptOfAnEndedAllocationIsOver) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.roster.job = "7.1";  // the job was requeued in the midst of it; its agents need their time to come up
  for (int n = 0; n < 5; ++n) c.kill(n);
  for (const int n : {2, 3, 4}) c.revive(n);
  c.new_leader(3);
  c.run(10);
  EXPECT_TRUE(c.all("node_lost").empty());
  for (int n = 0; n < 5; ++n) c.revive(n);
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.result()["attempts"][0]["cause"], "allocation ended");
  EXPECT_NE(c.result()["attempts"][0]["recovered_s"], nullptr);
  EXPECT_TRUE(c.all("attempt_adopted").empty());
}

}  // namespace
}  // namespace holdfast::launcher
