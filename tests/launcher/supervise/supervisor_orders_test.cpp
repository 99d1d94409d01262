// Orders of `holdfast ctl`, and nodes that are removed before they fail: evicted, failing, slow, corrupt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::placement_of;
using test::Shape;
using testing::Contains;
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

TEST(Order, StopSavesAndIsNotQueuedAgain) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.run(1.3);
  const auto reached = c.reached;
  EXPECT_TRUE(order(c, Verb::stop).taken);
  ASSERT_TRUE(over(c, 3));
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_EQ(c.result()["status"], "stopped");
  EXPECT_GE(c.durable, reached);
  EXPECT_FALSE(order(c, Verb::save).taken) << "it is over";
}

TEST(Order, StopAfterATimeLimitIsStillForGoodAndOutlivesTheLeader) {
  FakeCluster c({.save_s = 4});
  ASSERT_TRUE(c.training(1));
  c.tell(0, [](Supervisor& s) { s.drain({true, "SIGUSR1"}); });
  c.run(0.2);
  EXPECT_TRUE(order(c, Verb::stop).taken);
  EXPECT_TRUE(order(c, Verb::stop).taken);
  EXPECT_EQ(c.all("drain").size(), 2u);
  c.new_leader(1);
  ASSERT_TRUE(over(c, 10));
  EXPECT_EQ(c.exit_code, 93);
}

TEST(Order, PauseHoldsTheRanksAndNobodyCallsItAHang) {
  Shape setup;
  setup.limits.step_s = 4;
  FakeCluster c(setup);
  ASSERT_TRUE(c.training(1));
  EXPECT_THAT(order(c, Verb::resume).says, HasSubstr("not paused"));
  EXPECT_TRUE(order(c, Verb::pause).taken);
  EXPECT_TRUE(order(c, Verb::pause).taken);
  c.run(0.5);
  const auto held_at = c.rank(0).step;
  c.run(30);
  EXPECT_EQ(c.rank(0).step, held_at);
  EXPECT_EQ(c.leader->attempt(), 1);
  c.new_leader(1);
  c.run(30);
  EXPECT_EQ(c.rank(0).step, held_at) << "the next leader keeps to it";
  EXPECT_EQ(c.leader->attempt(), 1);
  c.end_rank(3, 137);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2 && c.stage() == Stage::running; }, 10));
  c.run(5);
  EXPECT_TRUE(c.held) << "and so does the next attempt";
  EXPECT_TRUE(order(c, Verb::resume).taken);
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.all("paused").size(), 1u);
  EXPECT_EQ(c.all("resumed").size(), 1u);
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

TEST(Order, AStopEndsAPause) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  order(c, Verb::pause);
  c.run(1);
  EXPECT_TRUE(order(c, Verb::stop).taken);
  ASSERT_TRUE(over(c, 3));
  EXPECT_EQ(c.exit_code, 93);
}

TEST(Order, EvictedNodeLeavesWithoutALostStep) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.run(1.3);
  EXPECT_THAT(order(c, Verb::evict, "n1").says, HasSubstr("a spare takes its slot"));
  EXPECT_THAT(order(c, Verb::evict, "n1").says, HasSubstr("leaving already"));
  ASSERT_TRUE(c.training(2));
  const json first = c.result()["attempts"][0];
  EXPECT_EQ(first["cause"], "evicted");
  EXPECT_EQ(first["node"], "n1");
  EXPECT_EQ(first["lost_steps"], 0);
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2"));
  EXPECT_EQ(c.last("attempt_planned")["answer"], "substitute");
  c.run(2);
  EXPECT_TRUE(c.leader->state().evicted.contains("n1")) << "it answers, and stays out";
  EXPECT_TRUE(c.all("node_returned").empty());
  EXPECT_FALSE(c.leader->state().asked_of_ranks()) << "it has been carried out";
  EXPECT_EQ(c.leader->state().failures.count("n1"), 0u) << "no failure of the node";
  EXPECT_THAT(order(c, Verb::evict, "n1").says, HasSubstr("is lost or evicted already"));
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

TEST(Order, EvictionOfASpareAndOfNobody) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  EXPECT_FALSE(order(c, Verb::evict, "n9").taken);
  EXPECT_TRUE(order(c, Verb::evict, "n4").taken);
  EXPECT_EQ(c.leader->attempt(), 1);
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n3", "n2"));
  EXPECT_THAT(order(c, Verb::evict, "n0").says, HasSubstr("back into the queue"));
  ASSERT_TRUE(over(c, 5));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_THAT(c.result()["exclude"].get<std::vector<std::string>>(), ElementsAre("n0", "n1", "n4"));
  EXPECT_EQ(c.result()["attempts"][1]["lost_steps"], 0);
  EXPECT_GE(c.durable, c.result()["attempts"][1]["last_step"].get<std::int64_t>());
}

TEST(Order, EvictionThatWouldEndTheRunIsRefused) {
  Shape setup{.slots = 2, .spares = 0};
  setup.limits.when_short = config::WhenShort::stop;
  FakeCluster c(setup);
  ASSERT_TRUE(c.training(1));
  EXPECT_FALSE(order(c, Verb::evict, "n0").taken);
  c.run(1);
  EXPECT_EQ(c.stage(), Stage::running);
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

// Nodes with signs of a coming failure.

control::NodeSigns sign(const std::string& kind, const std::string& text = "") {
  return {{control::Sign{kind, -1, 0, 100, text}}};
}

TEST(Signs, DyingHardwareLeavesBeforeItTakesRanksAlong) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.tell(1, [](Supervisor& s) { s.node_signs(1, sign("row_remap_failure", "GPU 3")); });
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.result()["attempts"][0]["cause"], "evicted");
  EXPECT_EQ(c.result()["attempts"][0]["lost_steps"], 0);
  EXPECT_TRUE(c.leader->state().evicted.contains("n1"));
}

TEST(Signs, ALinkMayComeBackAndWithoutASpareNobodyLeavesUnasked) {
  FakeCluster c({.slots = 3, .spares = 0});
  ASSERT_TRUE(c.training(1));
  c.tell(1, [](Supervisor& s) { s.node_signs(1, sign("row_remap_failure", "GPU 3")); });
  c.tell(2, [](Supervisor& s) { s.node_signs(2, sign("link_down", "mlx5_0")); });
  c.run(3);
  EXPECT_EQ(c.leader->attempt(), 1);
  EXPECT_TRUE(c.all("eviction_ordered").empty());
}

TEST(Signs, TheCauseIsNamedAndNotItsVictims) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.tell(2, [](Supervisor& s) { s.node_signs(2, sign("gpu_lost", "GPU 5 has fallen off the bus")); });
  for (const int rank : {0, 5, 1}) c.end_rank(rank, 1);
  ASSERT_TRUE(c.training(2));
  const json ended = c.all("attempt_ended")[0];
  EXPECT_EQ(ended["node"], "n2");
  EXPECT_EQ(ended["cause"], "gpu");
  EXPECT_EQ(ended["kind"], "node");
  EXPECT_GE(ended["evidence"].size(), 2u);
  EXPECT_THAT(std::string(ended["advice"]), HasSubstr("reboot"));
  EXPECT_TRUE(c.leader->state().evicted.contains("n2"));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n4"));
}

// Slow and hung ranks.

TEST(Hang, TheCulpritsStackIsAskedForAndKept) {
  for (const bool answers : {true, false}) {
    FakeCluster c;
    ASSERT_TRUE(c.training(1));
    c.agent(1).dumps = answers;
    c.rank(3).hangs = true;
    ASSERT_TRUE(c.training(2, 610));
    const json ended = c.all("attempt_ended")[0];
    EXPECT_EQ(ended["rank"], 3);
    EXPECT_EQ(ended["evidence"].size(), answers ? 3u : 1u);
    if (answers) {
      EXPECT_EQ(ended["evidence"][1], "#0 wait");
    }
    EXPECT_LE(ended["decided_s"], answers ? 0.2 : 2.2);
  }
}

TEST(Hang, IsNoticedByThePaceThatWasLearned) {
  FakeCluster c;
  c.hung_phase = control::Phase::forward;
  ASSERT_TRUE(c.training(1));
  c.run(30);
  c.rank(3).hangs = true;
  ASSERT_TRUE(c.training(2, 15)) << "5 s, and not supervise.step_s = 600";
  EXPECT_EQ(c.result()["attempts"][0]["cause"], "rank hung");
  EXPECT_EQ(c.result()["attempts"][0]["rank"], 3);
}

TEST(Straggler, IsNamedAndReplacedWhereThatIsWanted) {
  for (const auto answer : {config::OnStraggler::report, config::OnStraggler::substitute}) {
    Shape setup;
    setup.limits.on_straggler = answer;
    FakeCluster c(setup);
    ASSERT_TRUE(c.training(1));
    for (int step = 1; step <= 60 && c.leader->attempt() == 1; ++step) {
      for (int n = 0; n < 3; ++n)
        c.tell(n, [n, step](Supervisor& s) {
          control::Beat beat{"n" + std::to_string(n), 1, {}};
          for (const int rank : {2 * n, 2 * n + 1})
            beat.ranks.push_back(
                {rank, 1, 1000 + step, control::Phase::forward, rank == 3 ? 200000 : 100000});
          s.agent_here(n, beat);
        });
      c.run(0.1);
    }
    ASSERT_EQ(c.all("straggler").size(), 1u);
    EXPECT_EQ(c.last("straggler")["rank"], 3);
    EXPECT_EQ(c.last("straggler")["node"], "n1");
    EXPECT_EQ(c.all("eviction_ordered").size(), answer == config::OnStraggler::substitute ? 1u : 0u);
  }
}

TEST(Straggler, ANodeBehindASlowNetworkOrLinkIsReplacedLikeOneThatComputesLate) {
  for (const bool by_link : {true, false}) {
    Shape setup;
    setup.limits.on_straggler = config::OnStraggler::substitute;
    FakeCluster c(setup);
    ASSERT_TRUE(c.training(1));
    for (std::int64_t step = 1000; step <= 1030 && !by_link; step += control::Waits::window) {
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
    if (by_link)
      c.tell(1, [](Supervisor& s) { s.node_signs(1, {{{"link_slow", -1, 50, 0, "mlx5_0 runs at half"}}}); });
    c.run(0.5);
    ASSERT_EQ(c.all("straggler").size(), 1u);
    EXPECT_EQ(c.last("straggler")["what"], by_link ? "link" : "network");
    EXPECT_EQ(c.last("straggler")["node"], "n1");
    ASSERT_EQ(c.all("eviction_ordered").size(), 1u);
    EXPECT_EQ(c.last("eviction_ordered")["node"], "n1");
    EXPECT_TRUE(c.training(2)) << "the spare has its slot";
  }
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

TEST(Doubt, TheAccusedNodeLeavesAndWhatItMayHaveSpoiltIsNotUsed) {
  FakeCluster c({.checkpoint_every = 10, .local = true});
  c.on_launch = [&](const Launch& what) {
    EXPECT_EQ(what.trusted_step, what.attempt == 1 ? -1 : 20)
        << "of 10, 20, 30, 40: the comparison at 25 came out right";
  };
  ASSERT_TRUE(c.until([&] { return c.reached == 45; }, 20));
  c.tell(0, [](Supervisor& s) { s.rank_doubt(0, {0, 1, 25, {2, 3}, "replicas", "digests differ"}); });
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.result()["attempts"][0]["cause"], "silent corruption");
  EXPECT_EQ(c.result()["attempts"][0]["node"], "n1");
  EXPECT_EQ(c.last("silent_corruption")["trusted_step"], 20);
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2"));
  EXPECT_EQ(c.result()["attempts"][1]["restored_from"]["step"], 20);
  EXPECT_EQ(c.result()["durable_step"], 20) << "30 and 40 count for nothing";
  c.on_launch = [](const Launch&) {};
  ASSERT_TRUE(c.until([&] { return c.leader->state().durable_step == 30; }, 10));
  EXPECT_EQ(c.leader->state().trusted_step, 30);
  c.tell(0, [](Supervisor& s) { s.checkpoint_decided({1, 40, true, ""}, "late"); });
  c.run(0.1);
  EXPECT_EQ(c.leader->state().durable_step, 30) << "of the attempt that is in doubt";
  ASSERT_TRUE(c.until([&] { return c.leader->state().durable_step == 50; }, 10));
  EXPECT_EQ(c.leader->state().trusted_step, -1) << "newer than all that is in doubt";
}

TEST(Doubt, WhenItCannotBeToldWhoIsWrong) {
  FakeCluster c(Shape{});
  ASSERT_TRUE(c.until([&] { return c.reached == 25; }, 20));
  c.tell(0, [](Supervisor& s) { s.rank_doubt(0, {0, 1, 15, {0, 2}, "micro_batch", ""}); });
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n2"));
  EXPECT_EQ(c.leader->state().suspects, (std::set<std::string>{"n0", "n1"}));
  EXPECT_EQ(c.result()["attempts"][1]["restored_from"]["step"], 10);
  EXPECT_TRUE(c.leader->state().evicted.empty());
  c.tell(0, [](Supervisor& s) {
    s.rank_doubt(0, {0, 1, 20, {0}, "micro_batch", "of an attempt that is over"});
  });
  c.run(0.2);
  EXPECT_EQ(c.leader->attempt(), 2);
}

// A run that shrinks.

Shape shrinking_shape() {
  Shape setup{.slots = 4, .spares = 1, .checkpoint_every = 5};
  setup.limits.min_nodes = 2;
  setup.limits.when_short = config::WhenShort::shrink;
  setup.facts.shrinking = {
      .nodes = 4, .together = 1, .ranks_per_node = 2, .group = 2, .parts = 4, .steps = 1000000};
  return setup;
}

TEST(Shrink, GoesOnSmallerAndGrowsBack) {
  FakeCluster c(shrinking_shape());
  ASSERT_TRUE(c.training(1));
  c.kill(0);
  ASSERT_TRUE(c.training(2));
  c.run(1);
  c.kill(1);
  ASSERT_TRUE(c.training(3));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n4", "n3", "n2"));
  EXPECT_EQ(c.last("run_shrunk")["nodes"], 3);
  EXPECT_EQ(c.last("run_shrunk")["slowdown"], 2.0);
  EXPECT_EQ(c.leader->world(), 6);
  EXPECT_EQ(c.last("placement_verified")["ranks"], 6);
  c.new_leader(2);
  c.run(1);
  EXPECT_EQ(c.all("attempt_adopted").size(), 1u) << "the next leader knows the smaller world";
  EXPECT_EQ(c.leader->world(), 6);
  c.revive(1);
  c.run(1);
  EXPECT_EQ(c.leader->attempt(), 3);
  c.end_rank(1, 137);
  ASSERT_TRUE(c.training(4));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n4", "n3", "n2", "n1"));
  EXPECT_EQ(c.last("run_grown")["nodes"], 4);
}

TEST(Shrink, NotBelowItsLimit) {
  Shape setup = shrinking_shape();
  setup.limits.min_nodes = 3;
  setup.limits.when_short = config::WhenShort::automatic;
  setup.facts.shrinking.steps = 100;
  setup.steps = 100;
  FakeCluster c(setup);
  ASSERT_TRUE(c.training(1));
  c.run(1);
  c.kill(0);
  ASSERT_TRUE(c.training(2));
  c.run(1);
  c.kill(1);
  ASSERT_TRUE(c.training(3)) << "seconds are left: a smaller world is the cheaper one";
  c.run(1);
  c.kill(2);
  ASSERT_TRUE(over(c, 10));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.result()["status"], "drained") << "what is left saves its state first";
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("no spare node is left"));
  EXPECT_THAT(c.result()["exclude"].get<std::vector<std::string>>(), Contains("n2"));
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
