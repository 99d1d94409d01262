// Which spare takes a failed node's slot: one row for each rule, each against the rule below it.
#include "launcher/supervise/spare_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
using testing::ElementsAre;

/// Nodes 0 to 2 are placed (scalable units A, B, B), 3 is the batch host, 4 to 7 are spares.
class SpareChoice : public testing::Test {
 protected:
  Roster roster =
      test::roster_of({.slots = 3, .spares = 5, .units = {"A", "B", "B", "A", "A", "B", "B", "A"}});
  RunState state;
  std::vector<int> placement = {0, 1, 2};
  std::vector<NodeView> views = std::vector<NodeView>(8);
  int best(int failed) const { return best_spare(roster, state, placement, failed, views); }
};

TEST_F(SpareChoice, TheFailedNodesUnitThenByOrder) {
  EXPECT_EQ(best(0), 4);
  EXPECT_EQ(best(1), 5);
  EXPECT_EQ(best(-1), 4) << "nobody in particular";
  EXPECT_EQ(best_spare(roster, state, placement, 1, {}), 5) << "nothing is known of any node";
}

TEST_F(SpareChoice, FewerPastFailuresWithinTheUnit) {
  roster.nodes[5].past_failures = 2;
  EXPECT_EQ(best(1), 6);
  roster.nodes[6].past_failures = 5;
  EXPECT_EQ(best(1), 5) << "the unit weighs more: rails stay short";
}

TEST_F(SpareChoice, TheBatchHostAfterAnotherUnit) {
  state.lost = {"n4", "n7"};
  EXPECT_EQ(best(0), 5);
  state.lost = {"n4", "n5", "n6", "n7"};
  EXPECT_EQ(best(0), 3);
}

TEST_F(SpareChoice, AWarningAfterTheBatchHost) {
  for (const int n : {4, 5, 6, 7}) views[n].fitness = Fitness::warning;
  EXPECT_EQ(best(0), 3);
  state.lost = {"n3"};
  EXPECT_EQ(best(0), 4) << "but better than nothing";
  for (auto& view : views) view.fitness = Fitness::unknown;
  views[4].fitness = Fitness::ok;
  EXPECT_EQ(best(1), 5) << "not to know is no warning";
}

TEST_F(SpareChoice, ASuspectAfterAWarning) {
  state.suspects = {"n4", "n5", "n6"};
  views[7].fitness = Fitness::warning;
  state.lost = {"n3"};
  EXPECT_EQ(best(1), 7);
  state.lost = {"n3", "n7"};
  EXPECT_EQ(best(1), 5) << "but better than nothing";
}

TEST_F(SpareChoice, ALateOneAfterASuspect) {
  state.suspects = {"n6"};
  for (const int n : {3, 4, 5, 7}) views[n].heard_now = false;
  EXPECT_EQ(best(0), 6);
  state.lost = {"n6"};
  EXPECT_EQ(best(0), 4) << "but better than nothing";
}

TEST_F(SpareChoice, AnUnfitOneAfterALateOne) {
  for (auto& view : views) view.fitness = Fitness::critical;
  views[6] = {Fitness::warning, true, false};
  EXPECT_EQ(best(0), 6);
  state.lost = {"n6"};
  EXPECT_EQ(best(0), 4) << "but better than nothing";
}

TEST_F(SpareChoice, Never) {
  state.lost = {"n4"};
  EXPECT_EQ(best(0), 7);
  views[7].numerics_agree = false;
  EXPECT_EQ(best(0), 5) << "other bits";
  state.lost = {"n3", "n4", "n5"};
  EXPECT_EQ(best(0), 6) << "lost";
  placement = {0, 1, 6};
  EXPECT_EQ(best(0), 2) << "placed; the one whose slot it took is free";
  state.lost = {"n2", "n3", "n4", "n5"};
  EXPECT_EQ(best(0), -1);
}

TEST_F(SpareChoice, FillTakesADifferentSpareForEachSlot) {
  state.lost = {"n0", "n2"};
  const auto filled = fill(roster, state, placement, views);
  ASSERT_TRUE(filled);
  EXPECT_THAT(filled->placement, ElementsAre(4, 1, 5));
  ASSERT_EQ(filled->promotions.size(), 2u);
  EXPECT_EQ(filled->promotions[1].slot, 2);
  EXPECT_EQ(filled->promotions[1].from, 2);
  EXPECT_EQ(filled->promotions[1].to, 5);
  for (const int n : {3, 4, 5, 6}) views[n].numerics_agree = false;
  EXPECT_FALSE(fill(roster, state, placement, views)) << "one spare for two slots";
  state.lost.clear();
  const auto whole = fill(roster, state, placement, views);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->placement, placement);
  EXPECT_TRUE(whole->promotions.empty());
}

}  // namespace
}  // namespace holdfast::launcher
