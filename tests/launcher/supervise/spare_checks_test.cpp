#include "launcher/supervise/spare_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Fitness = control::NodeHealth::Fitness;

/// Nodes 0 and 1 train, 2 and 3 are spares.
class SparesChecked : public testing::Test {
 protected:
  std::vector<int> check(double at, bool before_start = false) {
    return checks.begin(roster, lost, placement, fresh, before_start, at);
  }
  std::vector<bool> agree() const {
    std::vector<bool> out;
    for (const auto& view : checks.views(placement, fresh)) out.push_back(view.numerics_agree);
    return out;
  }
  Roster roster = test::roster_of({.slots = 2, .spares = 2});
  std::set<std::string> lost;
  std::vector<int> placement = {0, 1};
  std::vector<bool> fresh = {true, true, true, true};
  SpareChecks checks{4, 60, 100};
};

TEST_F(SparesChecked, AreDueAtOnceAndThenPeriodically) {
  EXPECT_TRUE(checks.due(100));
  EXPECT_THAT(check(100), ElementsAre(2, 3));
  EXPECT_FALSE(checks.due(159));
  EXPECT_TRUE(checks.due(160));
  EXPECT_FALSE(SpareChecks(4, 0, 100).due(1e9)) << "never";
  lost = {"n2"};
  EXPECT_THAT(check(160), ElementsAre(3));
  fresh[3] = false;
  EXPECT_THAT(check(220, true), IsEmpty());
}

TEST_F(SparesChecked, OneActiveNodeIsAskedForItsNumericsBeforeItsRanksStart) {
  EXPECT_THAT(check(100, true), ElementsAre(2, 3, 0));
  checks.take(1, {Fitness::ok, "", "ab"});
  EXPECT_THAT(check(160, true), ElementsAre(2, 3)) << "they are known";
}

TEST_F(SparesChecked, OnlyChangesAreNews) {
  EXPECT_FALSE(checks.take(2, {})) << "nothing was found out";
  EXPECT_TRUE(checks.take(2, {Fitness::ok, "", ""}));
  EXPECT_FALSE(checks.take(2, {Fitness::ok, "other words", ""}));
  EXPECT_TRUE(checks.take(2, {Fitness::ok, "", "ab"}));
  EXPECT_TRUE(checks.take(2, {Fitness::warning, "hot", "ab"}));
  EXPECT_EQ(checks.newest(2).why, "hot");
  EXPECT_EQ(checks.views(placement, fresh)[2].fitness, Fitness::warning);
}

TEST_F(SparesChecked, TheNumericsAreThoseOfActiveNodesOrOfMostOthers) {
  checks.take(2, {Fitness::ok, "", "ab"});
  checks.take(3, {Fitness::ok, "", "cd"});
  EXPECT_THAT(agree(), ElementsAre(true, true, true, true)) << "one against one";
  checks.take(0, {Fitness::ok, "", "cd"});
  EXPECT_THAT(agree(), ElementsAre(true, true, false, true));
  placement = {1};
  checks.take(0, {Fitness::ok, "", "ab"});
  EXPECT_THAT(agree(), ElementsAre(true, true, true, false)) << "two against one";
}

}  // namespace
}  // namespace holdfast::launcher
