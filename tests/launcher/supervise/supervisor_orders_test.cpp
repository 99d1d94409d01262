// Orders of `holdfast ctl`, and nodes that are removed before they fail: evicted, slow, corrupt.
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
using Verb = control::Order::Verb;
using Fitness = control::NodeHealth::Fitness;

/// The answer of the leader.
control::OrderTaken order(FakeCluster& c, Verb verb, const std::string& node = "") {
  control::OrderTaken answer;
  c.tell(0, [&](Supervisor& s) { answer = s.order({"7", verb, node, "mia@login"}); });
  c.run(0.1);
  EXPECT_EQ(answer.id, "7");
  return answer;
}

TEST(Order, SaveSavesAndGoesOn) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.run(1.3);
  EXPECT_TRUE(order(c, Verb::save).taken);
  c.tell(0, [](Supervisor& s) { s.rank_heard({0, 1, control::RankHeard::What::save}); });
  EXPECT_THAT(order(c, Verb::save).says, HasSubstr("under way"));
  const std::int64_t then = c.last("drain")["step"];
  ASSERT_TRUE(c.until([&] { return !c.leader->state().drain; }, 3));
  EXPECT_GE(c.leader->state().durable_step, then);
  EXPECT_THAT(std::string(c.last("drain")["reason"]), HasSubstr("mia@login"));
  EXPECT_EQ(c.all("drain").size(), 1u);
  EXPECT_FALSE(c.exit_code);
}

TEST(Order, IsTakenOnceTheProgramOfARankHasTakenIt) {
  using Heard = control::RankHeard::What;
  FakeCluster c({.save_s = 10});
  ASSERT_TRUE(c.training(1));
  const auto heard = [&](int rank, int attempt, Heard what) {
    c.tell(0, [&](Supervisor& s) { s.rank_heard({rank, attempt, what}); });
    c.run(0.1);
  };
  EXPECT_TRUE(order(c, Verb::save).taken);
  EXPECT_TRUE(c.leader->untaken(Verb::save));
  EXPECT_THAT(order(c, Verb::save).says, HasSubstr("none has taken the order yet"));
  heard(1, 7, Heard::save);
  heard(1, 1, Heard::stop);
  heard(1, 1, Heard::sigterm);
  EXPECT_TRUE(c.leader->untaken(Verb::save)) << "another attempt, another order";
  heard(1, 1, Heard::save);
  heard(2, 1, Heard::save);
  EXPECT_FALSE(c.leader->untaken(Verb::save));
  ASSERT_EQ(c.all("order_heard").size(), 1u);
  EXPECT_EQ(c.last("order_heard")["rank"], 1);
  c.new_leader(1);
  c.run(1);
  EXPECT_FALSE(c.leader->untaken(Verb::save)) << "it is on record";
  EXPECT_TRUE(order(c, Verb::pause).taken);
  EXPECT_TRUE(c.leader->untaken(Verb::pause));
  heard(0, 1, Heard::pause);
  EXPECT_FALSE(c.leader->untaken(Verb::pause));
  order(c, Verb::resume);
  order(c, Verb::pause);
  EXPECT_TRUE(c.leader->untaken(Verb::pause)) << "a new order";
}

TEST(Order, ToStopThatNoRankTakesIsSaidAtTheEnd) {
  for (const bool taken : {false, true}) {
    FakeCluster c({.drain_s = 5, .save_s = 100});
    ASSERT_TRUE(c.training(1));
    EXPECT_TRUE(order(c, Verb::stop).taken);
    EXPECT_TRUE(c.leader->untaken(Verb::stop));
    if (taken) c.tell(0, [](Supervisor& s) { s.rank_heard({3, 1, control::RankHeard::What::stop}); });
    ASSERT_TRUE(over(c, 20));
    const std::string why = c.result()["why"];
    EXPECT_EQ(why.find("no rank has said that it took the order to end") == std::string::npos, taken) << why;
  }
}

TEST(Result, GoodputLeavesOutPauses) {
  FakeCluster c({.steps = 200});
  ASSERT_TRUE(c.training(1));
  order(c, Verb::pause);
  c.run(400);
  order(c, Verb::resume);
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 60));
  EXPECT_LT(c.result()["goodput"], 0.1) << "some 20 s of steps in 420 s";
}

TEST(Order, EvictionOutlivesTheLeaderAndRanksThatDoNotSave) {
  FakeCluster c({.drain_s = 5, .save_s = 4});
  ASSERT_TRUE(c.training(1));
  ASSERT_TRUE(order(c, Verb::evict, "n2").taken);
  c.new_leader(1);
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.result()["attempts"][0]["cause"], "evicted");
  c.rank(0).hangs = true;
  ASSERT_TRUE(order(c, Verb::evict, "n0").taken);
  ASSERT_TRUE(c.training(3));
  EXPECT_THAT(std::string(c.last("attempt_ended")["evidence"][0]), HasSubstr("have not saved within 5 s"));
}

TEST(Order, SparesListsEveryNode) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.tell(4, [](Supervisor& s) { s.node_health(4, {Fitness::warning, "disk.space: 91 % used", "ab"}); });
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  const json nodes = json::parse(order(c, Verb::spares).says);
  ASSERT_EQ(nodes.size(), 5u);
  EXPECT_EQ(nodes[1]["role"], "lost");
  EXPECT_EQ(nodes[1]["failures"], 1);
  EXPECT_EQ(nodes[3]["role"], "active") << "the batch host, before one whose checks warn";
  EXPECT_EQ(nodes[3]["slot"], 1);
  EXPECT_EQ(nodes[3]["batch_host"], true);
  EXPECT_EQ(nodes[4]["role"], "spare");
  EXPECT_EQ(nodes[4]["fitness"], "warning");
}

// Checks of spares.

TEST(Spares, AreCheckedAndUnfitOnesAreNotPromoted) {
  Shape setup{.slots = 3, .spares = 3};
  setup.limits.check_spares_s = 10;
  FakeCluster c(setup);
  ASSERT_TRUE(c.training(1));
  c.run(25);
  ASSERT_GE(c.checks.size(), 3u);
  EXPECT_THAT(c.checks.back().nodes, ElementsAre(3, 4, 5));
  c.tell(4, [](Supervisor& s) {
    s.node_health(4, {Fitness::critical, "gpu.count: 7 of 8", ""});
    s.node_health(4, {Fitness::critical, "gpu.count: 7 of 8", ""});
  });
  c.run(0.1);
  EXPECT_EQ(c.all("spare_health").size(), 1u) << "news alone";
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n5", "n2"));
}

TEST(Spares, AnotherArithmeticIsNotTheRuns) {
  FakeCluster c({.slots = 2, .spares = 3});
  ASSERT_TRUE(c.training(1));
  for (int n = 2; n < 5; ++n)
    c.tell(n, [n](Supervisor& s) { s.node_health(n, {Fitness::ok, "", n == 3 ? "cd" : "ab"}); });
  c.run(0.1);
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4"));
}

// Slow ranks.

TEST(Straggler, ANodeBehindASlowNetworkIsReplacedLikeOneThatComputesLate) {
  Shape setup;
  setup.limits.on_straggler = config::OnStraggler::substitute;
  FakeCluster c(setup);
  ASSERT_TRUE(c.training(1));
  for (std::int64_t step = 1000; step <= 1030; step += control::Waits::window) {
    for (int rank = 0; rank < 6; ++rank) {
      control::Waits waits{step, 1'000'000, 2, 0, {}};
      for (int node = 0; node < 3; ++node)
        if (node != rank / 2)
          waits.longest.push_back({2 * node, node == 1 || rank / 2 == 1 ? 600'000 : 200'000});
      if (waits.longest[0].us < waits.longest[1].us) std::swap(waits.longest[0], waits.longest[1]);
      waits.median_us = waits.longest[1].us;
      c.tell(rank / 2, [rank, waits](Supervisor& s) { s.rank_waits(rank / 2, {rank, 1, waits}); });
    }
    c.run(0.1);
  }
  c.run(0.5);
  ASSERT_EQ(c.all("straggler").size(), 1u);
  EXPECT_EQ(c.last("straggler")["what"], "network");
  EXPECT_EQ(c.last("straggler")["node"], "n1");
  ASSERT_EQ(c.all("eviction_ordered").size(), 1u);
  EXPECT_EQ(c.last("eviction_ordered")["node"], "n1");
  EXPECT_TRUE(c.training(2)) << "the spare has its slot";
}

TEST(Straggler, WithoutASpareItStaysAndASpareStaysASpare) {
  for (const int spares : {0, 2}) {
    Shape setup;
    setup.spares = spares;
    setup.limits.on_straggler = config::OnStraggler::substitute;
    FakeCluster c(setup);
    ASSERT_TRUE(c.training(1));
    const int node = spares == 0 ? 1 : 3;
    c.tell(node, [node](Supervisor& s) { s.node_signs(node, {{{"link_slow", -1, 50, 0, "mlx5_0"}}}); });
    c.run(0.5);
    EXPECT_EQ(c.all("straggler").size(), 1u);
    EXPECT_TRUE(c.all("eviction_ordered").empty());
    EXPECT_TRUE(c.all("node_evicted").empty());
  }
}

// Silent corruption.

TEST(Doubt, ACheckpointOfTheAttemptInDoubtCountsForNothingAndNewerOnesEndTheDoubt) {
  FakeCluster c({.checkpoint_every = 10, .local = true});
  ASSERT_TRUE(c.until([&] { return c.reached == 45; }, 20));
  c.tell(0, [](Supervisor& s) { s.rank_doubt(0, {0, 1, 25, {2, 3}, "replicas", "digests differ"}); });
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2 && c.leader->state().durable_step == 30; }, 10));
  EXPECT_EQ(c.leader->state().trusted_step, 30);
  c.tell(0, [](Supervisor& s) { s.checkpoint_decided({1, 40, true, ""}, "late"); });
  c.run(0.1);
  EXPECT_EQ(c.leader->state().durable_step, 30) << "of the attempt that is in doubt";
  ASSERT_TRUE(c.until([&] { return c.leader->state().durable_step == 50; }, 10));
  EXPECT_EQ(c.leader->state().trusted_step, -1) << "newer than all that is in doubt";
  c.tell(0, [](Supervisor& s) {
    s.rank_doubt(0, {0, 1, 20, {0}, "micro_batch", "of an attempt that is over"});
  });
  c.run(0.2);
  EXPECT_EQ(c.leader->attempt(), 2);
}

TEST(Result, TimesOfARecoveryByPart) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  const json result = c.result(), second = result["attempts"][1];
  const double parts = second["launched_s"].get<double>() + second["restored_s"].get<double>() +
                       second["first_step_s"].get<double>();
  EXPECT_NEAR(parts, result["attempts"][0]["recovered_s"].get<double>(), 1e-6);
  EXPECT_GT(second["first_step_s"], 0.0);
}

TEST(Progress, AttemptsThatBringNothingComeToAnEnd) {
  Shape setup{.slots = 3, .spares = 2, .checkpoint_every = 1000000};
  setup.limits.max_without_checkpoint = 4;
  setup.limits.max_same_step = 100;
  FakeCluster c(setup);
  for (int attempt = 1; attempt <= 5 && !c.exit_code; ++attempt) {
    ASSERT_TRUE(c.until(
        [&] {
          return c.leader->attempt() == attempt && c.stage() == Stage::running &&
                 c.rank(0).step >= 9 - attempt;
        },
        20));
    c.end_rank(attempt % 2, 1);
    c.run(1);
  }
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("neither a new step nor a checkpoint"));
}

}  // namespace
}  // namespace holdfast::launcher
