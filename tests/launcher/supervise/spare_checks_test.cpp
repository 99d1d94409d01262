#include "launcher/supervise/spare_checks.hpp"

#include <fmt/format.h>
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
  std::vector<int> check(double at) { return checks.begin(roster, lost, placement, heard_now, at); }
  std::vector<bool> agree() const {
    std::vector<bool> out;
    for (const auto& view : checks.views(placement, heard_now, shared)) out.push_back(view.numerics_agree);
    return out;
  }
  static control::NodeHealth with(std::vector<control::NodeHealth::Finding> findings) {
    control::NodeHealth health{Fitness::ok, "all of it", "", std::move(findings)};
    for (const auto& finding : health.findings)
      if (health.fitness != Fitness::critical) health.fitness = finding.fitness;
    return health;
  }
  /// The checks that most nodes have in common, which are shared from now on.
  std::vector<std::string> become_shared() {
    std::vector<std::string> out;
    for (const auto& e : checks.news_of_all(roster, lost, shared)) {
      out.push_back(fmt::format("{} {} {}/{}", e.check, e.fitness, e.nodes, e.of));
      shared[e.check] = e.evidence;
    }
    return out;
  }
  std::optional<control::NodeHealth> news(int node) { return checks.news_of(node, node < 2, shared); }
  Roster roster = test::roster_of({.slots = 2, .spares = 2});
  std::set<std::string> lost;
  std::vector<int> placement = {0, 1};
  std::vector<bool> heard_now = {true, true, true, true};
  SharedFindings shared;
  SpareChecks checks{4, 60, false, 100};
};

TEST_F(SparesChecked, AreDueAtOnceAndThenPeriodically) {
  EXPECT_TRUE(checks.due(100));
  EXPECT_THAT(check(100), ElementsAre(2, 3));
  EXPECT_FALSE(checks.due(159));
  EXPECT_TRUE(checks.due(160));
  EXPECT_FALSE(SpareChecks(4, 0, false, 100).due(1e9)) << "never";
  lost = {"n2"};
  EXPECT_THAT(check(160), ElementsAre(3));
  heard_now[3] = false;
  EXPECT_THAT(check(220), IsEmpty());
}

TEST_F(SparesChecked, EveryNodeIsCheckedOnceBeforeTheFirstStartAndWaitedForAWhile) {
  checks = SpareChecks(4, 60, true, 100);
  EXPECT_FALSE(checks.due(159));
  EXPECT_TRUE(checks.due(160));
  for (const int n : {0, 1, 2}) EXPECT_TRUE(checks.ask_first(n));
  EXPECT_FALSE(checks.ask_first(0)) << "once";
  EXPECT_TRUE(checks.awaits_first(heard_now, 110));
  for (const int n : {0, 1}) checks.take(n, {});
  EXPECT_TRUE(checks.awaits_first(heard_now, 111));
  heard_now[2] = false;
  EXPECT_FALSE(checks.awaits_first(heard_now, 111)) << "n2 is silent, and n3 has not been asked";
  heard_now[2] = true;
  EXPECT_TRUE(checks.awaits_first(heard_now, 114.9));
  EXPECT_FALSE(checks.awaits_first(heard_now, 115)) << "nothing is known of n2";
  EXPECT_FALSE(SpareChecks(4, 0, true, 100).ask_first(0)) << "never";
}

TEST_F(SparesChecked, OnlyChangesAreNews) {
  const auto take = [&](int n, const control::NodeHealth& what) {
    checks.take(n, what);
    return news(n).has_value();
  };
  EXPECT_FALSE(take(2, {})) << "nothing was found out";
  EXPECT_TRUE(take(2, {Fitness::ok, "", ""}));
  EXPECT_FALSE(take(2, {Fitness::ok, "other words", ""}));
  EXPECT_TRUE(take(2, {Fitness::ok, "", "ab"}));
  EXPECT_TRUE(take(2, {Fitness::warning, "hot", "ab"}));
  EXPECT_EQ(checks.newest(2, {}).why, "hot");
  EXPECT_EQ(checks.views(placement, heard_now, {})[2].fitness, Fitness::warning);
  EXPECT_FALSE(take(0, {Fitness::ok, "", ""})) << "a node with a slot, fit as it should be";
  EXPECT_TRUE(take(1, {Fitness::critical, "gpu.count: 7 of 8", ""}));
  EXPECT_TRUE(take(1, {Fitness::ok, "", ""}));
}

TEST_F(SparesChecked, WhatMostNodesHaveInCommonCountsForNone) {
  const control::NodeHealth::Finding locked{"limits.locked", Fitness::critical, "64 KiB"},
      clock{"time.sync", Fitness::warning, "off"}, gpus{"gpu.count", Fitness::critical, "7 of 8"};
  checks.take(0, with({locked, clock}));
  checks.take(1, with({locked, gpus}));
  EXPECT_THAT(become_shared(), IsEmpty()) << "two of four";
  checks.take(2, with({locked}));
  EXPECT_THAT(become_shared(), ElementsAre("limits.locked critical 3/4"));
  EXPECT_THAT(become_shared(), IsEmpty()) << "it is said once";
  EXPECT_THAT(shared["limits.locked"], testing::HasSubstr("n0: 64 KiB"));
  const auto views = checks.views(placement, heard_now, shared);
  EXPECT_EQ(views[0].fitness, Fitness::warning);
  EXPECT_EQ(views[1].fitness, Fitness::critical) << "by a finding of its own";
  EXPECT_EQ(views[2].fitness, Fitness::ok);
  EXPECT_EQ(news(0)->why, "time.sync: off");
  EXPECT_EQ(news(1)->why, "gpu.count: 7 of 8");
  EXPECT_EQ(news(2)->fitness, Fitness::ok);
  lost = {"n2", "n3"};
  checks.take(1, with({clock}));
  EXPECT_THAT(become_shared(), ElementsAre("time.sync warning 2/2"));
}

TEST_F(SparesChecked, ACheckThatDoesNotComeToItsEndSaysNothingOfANode) {
  checks.take(1, {Fitness::unknown, "the check did not end in 15 s", ""});
  EXPECT_EQ(checks.views(placement, heard_now, shared)[1].fitness, Fitness::unknown);
  EXPECT_FALSE(news(1));
  checks.take(1, {Fitness::critical, "gpu.count: 7 of 8", "ab"});
  checks.take(1, {Fitness::unknown, "the check did not end in 15 s", ""});
  EXPECT_EQ(checks.views(placement, heard_now, shared)[1].fitness, Fitness::critical)
      << "what is known stays";
  EXPECT_EQ(checks.newest(1, shared).numerics, "ab");
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
