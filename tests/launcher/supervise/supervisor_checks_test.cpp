// Checks of all nodes before ranks start for the first time: an unfit node gives its slot away, what the
// nodes have in common refuses none of them, and a check that hangs delays the start by a few seconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using test::FakeCluster;
using test::placement_of;
using testing::ElementsAre;
using testing::IsEmpty;
using Fitness = control::NodeHealth::Fitness;

control::NodeHealth finding(const char* check, Fitness fitness = Fitness::critical) {
  return {fitness, std::string(check) + ": bad", "", {{check, fitness, "bad"}}};
}

TEST(FirstChecks, EveryNodeIsAskedOnceAndOnlySparesAndOneActiveNodeForTheirNumerics) {
  FakeCluster c({.slots = 3, .spares = 2});
  ASSERT_TRUE(c.training(1));
  std::vector<int> asked, probed;
  for (const auto& check : c.checks) {
    asked.insert(asked.end(), check.nodes.begin(), check.nodes.end());
    if (check.numerics) probed.insert(probed.end(), check.nodes.begin(), check.nodes.end());
  }
  EXPECT_THAT(asked, testing::UnorderedElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(probed, testing::UnorderedElementsAre(0, 3, 4));
  EXPECT_LT(c.now, 1002) << "the start is not delayed";
  c.new_leader(0);
  c.run(3);
  EXPECT_EQ(c.checks.size(), 6u) << "the next leader of the job checks its spares";
}

TEST(FirstChecks, WhatTheNodesHaveInCommonRefusesNoneAndIsSaidOnce) {
  for (const bool leader_changes : {false, true}) {
    FakeCluster c({.slots = 3, .spares = 2});
    for (int n = 0; n < 5; ++n) c.agent(n).health = finding("net.control");
    ASSERT_TRUE(c.training(1));
    EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n2"));
    EXPECT_EQ(c.last("finding_shared")["check"], "net.control");
    EXPECT_EQ(c.last("finding_shared")["nodes"], 5);
    if (leader_changes) {
      c.new_leader(0);
      c.run(3);
    }
    for (const auto& health : c.all("spare_health")) EXPECT_EQ(health["fitness"], "ok");
    EXPECT_TRUE(c.replayed().pasts["n4"].score(c.now + FakeCluster::unix_offset).clean());
    c.kill(1);
    ASSERT_TRUE(c.training(2));
    EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2"));
    EXPECT_EQ(c.all("finding_shared").size(), 1u);
  }
}

TEST(FirstChecks, ACheckThatDoesNotAnswerIsUnknownAndDelaysTheStartBySeconds) {
  FakeCluster c({.slots = 3, .spares = 2});
  c.agent(1).health.reset();
  ASSERT_TRUE(c.until(Stage::clearing, 10));
  EXPECT_GT(c.now, 1004);
  EXPECT_LT(c.now, 1007);
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n2"));
  EXPECT_THAT(c.all("spare_health"), IsEmpty());
  c.tell(1, [](Supervisor& s) { s.node_health(1, finding("gpu.count")); });
  c.run(1);
  EXPECT_EQ(c.last("spare_health")["node"], "n1") << "it is on record when it comes";
}

TEST(FirstChecks, AFindingOfMostNodesThatComesLateTakesBackWhatWasSaidOfEach) {
  FakeCluster c({.slots = 3, .spares = 2});
  ASSERT_TRUE(c.training(1));
  for (const int n : {3, 4, 0}) {
    c.tell(n, [n](Supervisor& s) { s.node_health(n, finding("nic.state")); });
    c.run(0.2);
  }
  EXPECT_EQ(c.last("finding_shared")["check"], "nic.state");
  for (const char* node : {"n0", "n3", "n4"})
    EXPECT_NE(c.replayed().health[node].fitness, Fitness::critical) << node;
  EXPECT_TRUE(c.replayed().pasts["n4"].score(c.now + FakeCluster::unix_offset).clean());
}

TEST(PartnerCopies, ThatAreOffAreSaidOnceAndSoIsTheirReturn) {
  FakeCluster c({.slots = 3, .spares = 1});
  ASSERT_TRUE(c.training(1));
  EXPECT_THAT(c.all("partner_copies"), IsEmpty());
  c.agent(1).copies_off = "the other end is gone";
  c.run(3);
  ASSERT_EQ(c.all("partner_copies").size(), 1u);
  EXPECT_EQ(c.last("partner_copies")["node"], "n1");
  EXPECT_EQ(c.last("partner_copies")["on"], false);
  EXPECT_EQ(c.last("partner_copies")["evidence"], "the other end is gone");
  c.new_leader(0);
  c.run(3);
  EXPECT_EQ(c.all("partner_copies").size(), 1u) << "the next leader knows it";
  EXPECT_EQ(c.replayed().copies_off.at("n1"), "the other end is gone");
  c.agent(1).copies_off = "";
  c.run(3);
  ASSERT_EQ(c.all("partner_copies").size(), 2u);
  EXPECT_EQ(c.last("partner_copies")["on"], true);
  EXPECT_TRUE(c.replayed().copies_off.empty());
  c.agent(2).copies_off = "the other end is gone";
  c.run(3);
  c.agent(2).copies_off = "";
  c.kill(2);
  ASSERT_TRUE(c.training(2));
  EXPECT_TRUE(c.replayed().copies_off.empty()) << "other nodes, other partners";
}

TEST(FirstChecks, NoneWhereTheyAreTurnedOff) {
  test::Shape setup{.slots = 3, .spares = 2};
  setup.limits.check_spares_s = 0;
  FakeCluster c(setup);
  ASSERT_TRUE(c.training(1));
  EXPECT_THAT(c.checks, IsEmpty());
}

}  // namespace
}  // namespace holdfast::launcher
