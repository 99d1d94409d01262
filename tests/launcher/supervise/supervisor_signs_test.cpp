// Signs of broken hardware, and how many nodes they may take: a bug of the program must not look like bad
// hardware, and no cause may use up all spares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using test::FakeCluster;
using test::over;
using test::placement_of;
using test::Shape;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The node that has a rank, with 2 ranks a node.
int node_of_rank(FakeCluster& c, int rank) { return c.leader->placement()[rank / 2]; }

/// The rank ends with 1, just after its GPU has shown an Xid.
void fail_by_xid(FakeCluster& c, int rank, int xid, const std::string& text) {
  const int n = node_of_rank(c, rank);
  c.tell(n, [n, xid, text](Supervisor& s) { s.node_signs(n, {{{"xid", -1, xid, 0, text, s.attempt()}}}); });
  c.end_rank(rank, 1);
}
const std::string page_fault = "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, MMU Fault",
                  double_bit = "NVRM: Xid (PCI:0000:3b:00): 48, pid=7, double bit error";

TEST(Signs, ABugOfTheProgramThatLooksLikeAFaultOfItsGpuCostsNoNode) {
  FakeCluster c({.slots = 3, .spares = 3});
  for (int attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_TRUE(c.until([&] { return c.leader->attempt() == attempt && c.stage() == Stage::running; }, 10));
    fail_by_xid(c, 0, 31, page_fault);
  }
  ASSERT_TRUE(over(c, 60)) << c.leader->attempt();
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("3 attempts in a row ended at step"));
  EXPECT_THAT(c.all("node_evicted"), IsEmpty());
  EXPECT_THAT(c.all("node_suspected"), IsEmpty());
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n2"));
  EXPECT_EQ(c.last("attempt_ended")["kind"], "program");
  EXPECT_EQ(c.last("attempt_ended")["xid"], 31);
  EXPECT_EQ(c.last("attempt_ended")["xid_rank"], 0);
}

/// Steps and leaders come in between, and the ranks of two nodes have it by turns.
TEST(Signs, ABugOfTheProgramThatComesAgainForHoursCostsNoNode) {
  FakeCluster c({.slots = 3, .spares = 3});
  for (int attempt = 1; attempt <= 8; ++attempt) {
    ASSERT_TRUE(c.training(attempt));
    c.run(attempt == 4 ? 4000 : 3);
    fail_by_xid(c, attempt % 2 == 0 ? 0 : 2, 31, page_fault);
    c.run(0.5);
    if (attempt % 3 == 0) c.new_leader(attempt / 3);
  }
  EXPECT_THAT(c.all("node_evicted"), IsEmpty());
  EXPECT_THAT(c.all("node_suspected"), IsEmpty());
  for (const auto& ended : c.all("attempt_ended")) EXPECT_EQ(ended["kind"], "program");
}

/// Broken hardware by NVIDIA's word, on one node after the other, before any step.
TEST(Signs, WhatShowsOnEveryNodeEvictsHalfOfTheSparesAndThenEndsAsTheProgramsFault) {
  for (const bool leaders_change : {false, true}) {
    FakeCluster c({.slots = 3, .spares = 4});
    for (int failures = 0; failures < 20 && !c.exit_code; ++failures) {
      ASSERT_TRUE(c.until([&] { return c.exit_code || c.stage() == Stage::running; }, 200));
      if (c.exit_code) break;
      fail_by_xid(c, 0, 48, double_bit);
      ASSERT_TRUE(c.until([&] { return c.exit_code || c.stage() != Stage::running; }, 20));
      if (leaders_change && !c.exit_code) c.new_leader(6);
    }
    EXPECT_EQ(c.exit_code, 93);
    EXPECT_EQ(c.all("node_evicted").size(), 2u);
    EXPECT_THAT(std::string(c.result()["why"]),
                HasSubstr("Xid 48 has evicted n0, n4 already (supervise.max_evictions)"));
    EXPECT_FALSE(c.all("node_suspected").empty()) << "spares that are left take the slot meanwhile";
  }
}

TEST(Signs, OneThatHasEvictedEnoughLeavesTheNextNodeInTraining) {
  Shape setup{.slots = 3, .spares = 4};
  setup.limits.max_evictions = 1;
  FakeCluster c(setup);
  ASSERT_TRUE(c.training(1));
  const auto failing = [&](int n, const char* kind) {
    c.tell(n, [n, kind](Supervisor& s) { s.node_signs(n, {{{kind, -1, 0, 0, "GPU 3", s.attempt()}}}); });
  };
  failing(0, "row_remap_failure");
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.last("eviction_ordered")["sign"], "row_remap_failure");
  c.new_leader(5);
  c.run(3);
  failing(1, "row_remap_failure");
  c.run(3);
  EXPECT_EQ(c.leader->attempt(), 2) << "training goes on";
  EXPECT_EQ(c.last("node_suspected")["node"], "n1");
  EXPECT_THAT(std::string(c.last("node_suspected")["evidence"]),
              HasSubstr("its node is kept: row_remap_failure has evicted n0 already"));
  failing(2, "gpu_lost");
  ASSERT_TRUE(c.training(3)) << "another sign has a budget of its own";
  EXPECT_EQ(c.last("eviction_ordered")["sign"], "gpu_lost");
}

/// The rank ends with 1, after an error that it has reported itself.
void fail_by_word(FakeCluster& c, int rank, const std::string& text) {
  const int n = node_of_rank(c, rank);
  c.tell(n, [n, rank, text](Supervisor& s) { s.rank_failed(n, {rank, s.attempt(), 1, text}); });
  c.end_rank(rank, 1);
}
const std::string lost_gpu = "the word list has no entry for 'GPU is lost'";

TEST(Signs, WhatAProgramSaysOfANodeStartsALookAndNothingElse) {
  FakeCluster c({.slots = 3, .spares = 3});
  ASSERT_TRUE(c.training(1));
  c.checks.clear();
  fail_by_word(c, 0, lost_gpu);
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.last("attempt_ended")["blame"], "claim");
  EXPECT_EQ(c.last("attempt_ended")["kind"], "program");
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n2"));
  EXPECT_THAT(c.all("node_evicted"), IsEmpty());
  EXPECT_THAT(c.all("node_suspected"), IsEmpty());
  EXPECT_TRUE(std::any_of(c.checks.begin(), c.checks.end(), [](const CheckNodes& check) {
    return check.nodes == std::vector{0};
  })) << "the node is looked at";
}

/// The second failure on one node makes it a suspect, as any would; the program's budget ends the run.
TEST(Signs, AProgramThatSaysSoAgainAndAgainEvictsNobody) {
  FakeCluster c({.slots = 3, .spares = 3});
  for (int attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_TRUE(c.until([&] { return c.leader->attempt() == attempt && c.stage() == Stage::running; }, 10));
    fail_by_word(c, 0, lost_gpu);
  }
  ASSERT_TRUE(over(c, 60)) << c.leader->attempt();
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_THAT(c.all("node_evicted"), IsEmpty());
  EXPECT_EQ(c.all("node_suspected").size(), 1u);
}

TEST(Signs, ALookThatFindsTheFaultEvictsTheNode) {
  FakeCluster c({.slots = 3, .spares = 3});
  ASSERT_TRUE(c.training(1));
  c.agents[0].health = control::NodeHealth{control::NodeHealth::Fitness::critical,
                                           "gpu: 7 of 8 GPUs",
                                           "",
                                           {{"gpu", control::NodeHealth::Fitness::critical, "7 of 8 GPUs"}}};
  fail_by_word(c, 0, lost_gpu);
  ASSERT_TRUE(c.until([&] { return !c.all("node_evicted").empty(); }, 30));
  EXPECT_EQ(c.last("node_evicted")["node"], "n0");
  EXPECT_THAT(c.last("node_evicted")["evidence"].get<std::string>(), HasSubstr("gpu: 7 of 8 GPUs"));
  ASSERT_TRUE(c.until([&] { return c.stage() == Stage::running; }, 30));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), testing::Not(testing::Contains("n0")));
}

/// Memory that is full may be the program's own doing; and without a spare the node is better than none.
TEST(Signs, ALookThatFindsFullMemoryOrMeetsNoSpareEvictsNobody) {
  for (const bool full : {true, false}) {
    FakeCluster c({.slots = 3, .spares = full ? 3 : 0});
    ASSERT_TRUE(c.training(1));
    const std::string check = full ? "memory.shm" : "gpu";
    c.agents[0].health =
        control::NodeHealth{control::NodeHealth::Fitness::critical,
                            check + ": nothing is left",
                            "",
                            {{check, control::NodeHealth::Fitness::critical, "nothing is left"}}};
    fail_by_word(c, 0, lost_gpu);
    ASSERT_TRUE(c.training(2)) << check;
    EXPECT_FALSE(
        c.until([&] { return !c.all("node_evicted").empty() || !c.all("eviction_ordered").empty(); }, 20))
        << check;
  }
}

TEST(Signs, AnOrderSpendsNothing) {
  Shape setup{.slots = 3, .spares = 4};
  setup.limits.max_evictions = 1;
  FakeCluster c(setup);
  ASSERT_TRUE(c.training(1));
  for (int attempt = 2; attempt <= 3; ++attempt) {
    c.leader->order(
        {std::to_string(attempt), control::Order::Verb::evict, attempt == 2 ? "n0" : "n1", "me@here"});
    ASSERT_TRUE(c.training(attempt));
  }
  EXPECT_THAT(c.leader->state().evictions, IsEmpty());
}

}  // namespace
}  // namespace holdfast::launcher
