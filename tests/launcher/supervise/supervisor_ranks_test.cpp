// Ranks that end, do not start, run on the wrong node or hang: which node is blamed, and what follows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::Shape;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Supervisor, EndsOfRanksAreNoEventsOnceTheRunIsOver) {
  FakeCluster c({.steps = 5});
  ASSERT_TRUE(test::over(c, 20));
  const auto before = c.all("rank_exited").size();
  for (const int rank : {0, 1, 2, 3, 4, 5})
    c.leader->rank_exited(rank / 2, control::RankExited{rank, 1, 143});
  c.run(0.2);
  EXPECT_EQ(c.all("rank_exited").size(), before);
}

TEST(Supervisor, RankThatEndsUnseenWhileItsAgentIsReplaced) {
  FakeCluster c({.reports = false});
  ASSERT_TRUE(c.until(Stage::running));
  c.agent(1).ranks.erase(3);
  c.restart_agent(1);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2; }, 30));
  EXPECT_THAT(std::string(c.last("attempt_ended")["evidence"][0]), HasSubstr("rank 3 on n1 vanished"));
  EXPECT_EQ(c.last("attempt_ended")["node"], "n1");
}

class FinalExitCode : public testing::TestWithParam<int> {};
TEST_P(FinalExitCode, StopsAtOnce) {
  for (const bool said_before : {true, false}) {
    FakeCluster c;
    ASSERT_TRUE(c.training(1));
    if (said_before)
      c.tell(1, [](Supervisor& s) {
        s.rank_failed(1, {2, 1, GetParam(), "the model file names no layers"});
      });
    c.end_rank(2, GetParam());
    c.run(2);
    EXPECT_EQ(c.exit_code, GetParam());
    EXPECT_EQ(c.result()["status"], "failed");
    EXPECT_EQ(c.result()["attempts"].size(), 1u);
    if (said_before) {
      EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("rank 2 on n1"));
      EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("the model file names no layers"));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Codes, FinalExitCode, testing::Values(2, 3, 4, 93));

/// The ranks have waited for it: a retry at once would wait as long, and a later job may find it in better
/// health.
TEST(Supervisor, ACheckpointThatStaysOutOfReachEndsTheJobToBeQueuedAgain) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.end_rank(2, 1);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2 && c.leader->stage() == Stage::running; }, 30));
  for (int rank = 0; rank < 6; ++rank)
    c.tell(rank / 2, [rank](Supervisor& s) {
      s.rank_failed(rank / 2,
                    {rank, 2, 75,
                     "checkpoint /runs/a/checkpoints/step-00000100 cannot be read now (manifest.json: "
                     "Input/output error, and so for 120 s)"});
    });
  for (int rank = 0; rank < 6; ++rank) c.end_rank(rank, rank == 0 ? 75 : 137);
  c.run(2);
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.result()["status"], "requeued");
  EXPECT_THAT(std::string(c.result()["why"]),
              testing::AllOf(HasSubstr("step-00000100"), HasSubstr("manifest.json")));
  EXPECT_EQ(c.result()["attempts"].size(), 2u);
  EXPECT_EQ(c.result()["attempts"][1]["cause"], "checkpoint_unreadable");
  EXPECT_TRUE(c.leader->state().failures.empty() || !c.leader->state().failures.contains("n0"))
      << "no node is to blame";
}

/// An empty folder of checkpoints does not look like a new run: ranks know which checkpoints must exist.
TEST(Supervisor, RanksAreToldWhichCheckpointsThereAre) {
  FakeCluster c({.checkpoint_every = 10});
  std::vector<std::int64_t> told;
  c.on_launch = [&](const Launch& what) { told = what.from.durable_steps; };
  ASSERT_TRUE(c.until([&] { return c.leader->state().durable_step == 40; }, 20));
  EXPECT_THAT(told, testing::IsEmpty());
  c.tell(0, [](Supervisor& s) { s.checkpoints_removed({10, 30}); });
  c.tell(0, [](Supervisor& s) { s.checkpoint_decided({1, 45, false, "full"}, "full"); });
  c.run(0.1);
  c.end_rank(2, 1);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(told, testing::ElementsAre(40, 20));
  c.new_leader(4);  // it knows the same from the record
  EXPECT_TRUE(c.leader->state().durable.contains(20));
  EXPECT_FALSE(c.leader->state().durable.contains(10) || c.leader->state().durable.contains(30));
}

TEST(Supervisor, ADamagedCheckpointIsOutOfTheRecord) {
  FakeCluster c({.checkpoint_every = 10});
  std::vector<std::int64_t> told;
  c.on_launch = [&](const Launch& what) { told = what.from.durable_steps; };
  ASSERT_TRUE(c.until([&] { return c.leader->state().durable_step == 40; }, 20));
  c.tell(0, [](Supervisor& s) { s.checkpoints_judged({{20, "another digest"}}, true); });
  c.run(0.1);
  EXPECT_EQ(c.leader->state().durable_step, 40);
  c.tell(0, [](Supervisor& s) { s.checkpoints_judged({{40, "another digest"}}, true); });
  c.run(0.1);
  EXPECT_EQ(c.leader->state().durable_step, 30);
  c.end_rank(2, 1);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(told, testing::ElementsAre(30, 10));
  c.new_leader(4);  // it knows the same from the record
  EXPECT_FALSE(c.leader->state().durable.contains(40));
}

TEST(Supervisor, WithoutASoundCheckpointTheRunEndsForGood) {
  FakeCluster c({.checkpoint_every = 10});
  ASSERT_TRUE(c.until([&] { return c.leader->state().durable_step == 20; }, 20));
  c.end_rank(2, 1);
  c.tell(0, [](Supervisor& s) { s.checkpoints_judged({{20, "model.pt does not match its digest"}}, false); });
  c.run(2);
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_EQ(c.result()["status"], "failed");
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("model.pt does not match its digest"));
  EXPECT_EQ(c.leader->state().durable_step, 20) << "the next job must not begin at step 0";
}

TEST(Supervisor, LostNodesDoNotCountAsTheSameStep) {
  FakeCluster c({.slots = 3, .spares = 6, .checkpoint_every = 4});
  for (const int victim : {0, 1, 2}) {
    ASSERT_TRUE(c.until([&] { return c.stage() == Stage::running && c.rank(0).step == 6; }, 20));
    c.kill(victim);
    ASSERT_TRUE(c.until([&] { return c.stage() != Stage::running; }, 20));
  }
  ASSERT_TRUE(c.training(4));
}

/// The limit bounds what a run may fail without moving on, not how long it lives.
TEST(Supervisor, RestartsAreForgottenWhenTheRunMovesOn) {
  RunState state;
  const auto event = [&](const nlohmann::json& e) { apply(state, test::entry(e)); };
  int number = 0;
  const auto fails = [&](const nlohmann::json& more = nlohmann::json::object()) {
    event({{"event", "attempt_planned"}, {"attempt", ++number}});
    nlohmann::json ended = {
        {"event", "attempt_ended"}, {"attempt", number}, {"cause", "rank failed"}, {"kind", "program"}};
    ended.update(more);
    event(ended);
  };
  event({{"event", "leader_elected"}, {"node", "n0"}, {"job", "17.0"}, {"term", 1}});
  fails();
  fails();
  EXPECT_EQ(state.restarts, 2);
  fails({{"kind", "planned"}, {"cause", "evicted"}});
  EXPECT_EQ(state.restarts, 2) << "what ends on order is no failure";
  event({{"event", "checkpoint_durable"}, {"step", 10}, {"attempt", number}});
  EXPECT_EQ(state.restarts, 0);
  fails();
  event({{"event", "checkpoint_durable"}, {"step", 10}, {"attempt", number}});
  EXPECT_EQ(state.restarts, 1) << "the same step again";
  event({{"event", "leader_elected"}, {"node", "n0"}, {"job", "18.0"}, {"term", 2}});
  EXPECT_EQ(state.restarts, 1) << "another job of the run";
  fails({{"reports", false}, {"ran_s", 30.0}});
  EXPECT_EQ(state.restarts, 2);
  fails({{"reports", false}, {"ran_s", 700.0}});
  EXPECT_EQ(state.restarts, 1) << "a program that ran for long before it failed";
}

/// The time limit, preemption or a requeue end a run's job again and again: none of it is a failure.
TEST(Supervisor, DrainsAreNoRestarts) {
  Shape setup;
  setup.limits.max_restarts = 2;
  FakeCluster c(setup);
  ASSERT_TRUE(c.training(1));
  c.leader->drain({true, "the time limit is near"});
  c.run(10);
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.leader->state().restarts, 0);
}

TEST(Supervisor, OneRankEachOfTwoNodesDoesNotStart) {
  FakeCluster c;
  c.agent(0).starts = c.agent(1).starts = false;
  ASSERT_TRUE(c.until(Stage::starting));
  c.tell(0, [](Supervisor& s) { s.rank_started(0, {0, 1, 1}); });
  c.tell(1, [](Supervisor& s) { s.rank_started(1, {2, 1, 1}); });
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2; }, 70));
  EXPECT_TRUE(c.all("node_suspected").empty()) << "two nodes: neither can be named";
  EXPECT_EQ(c.last("attempt_ended")["node"], "");
}

TEST(Supervisor, MisplacedRank) {
  FakeCluster c;
  c.agent(1).starts = false;
  ASSERT_TRUE(c.until(Stage::starting));
  c.tell(2, [](Supervisor& s) { s.rank_started(2, {3, 1, 1}); });
  c.agent(1).starts = true;
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.result()["attempts"][0]["cause"], "rank misplaced");
  EXPECT_THAT(std::string(c.all("attempt_ended")[0]["evidence"][0]),
              HasSubstr("rank 3 runs on n2 and not on n1"));
}

/// A site may allow long silences. What the ranks of a silent node do is not known, and they are not accused.
TEST(Supervisor, RanksOfASilentNodeAreNotTakenForHung) {
  Shape shape;
  shape.limits.node_silence_ms = 20000;
  FakeCluster c(shape);
  ASSERT_TRUE(c.training(1));
  c.run(60);  // a step's usual time is known
  c.kill(1);
  c.run(19);
  EXPECT_EQ(c.leader->attempt(), 1);
  ASSERT_TRUE(c.training(2));
  const json ended = c.last("attempt_ended");
  EXPECT_EQ(ended["cause"], "node lost");
  EXPECT_EQ(ended["node"], "n1");
}

/// The reports of the agents every second while rank 3 hangs and the others wait for it in a gather.
void report_flights(FakeCluster& c, std::int64_t silent_ms = 0, int attempt = 1) {
  for (int rank = 0; rank < 6; ++rank) {
    control::RankFlight said{rank, attempt, rank == 3 ? silent_ms : 20, {}};
    flight::FlightGroup group;
    group.key = 7;
    group.size = 6;
    group.member = static_cast<std::uint32_t>(rank);
    group.queued = 813;
    group.started = rank == 3 ? 811 : 812;
    group.finished = 811;
    group.operation = flight::Collective::all_gather;
    std::string_view("shard group 0").copy(group.name, sizeof group.name - 1);
    said.groups = {group};
    c.tell(rank / 2, [node = rank / 2, said](Supervisor& s) { s.rank_flight(node, said); });
  }
}

/// Gathers run beside the computation: the others wait in whatever phase needs the result, and the rank that
/// hangs may do so in any.
TEST(Supervisor, FlightRecordsNameTheHungRankWherePhasesMislead) {
  for (const bool recorded : {true, false}) {
    FakeCluster c;
    c.hung_phase = control::Phase::collective;
    c.waiting_phase = control::Phase::forward;
    ASSERT_TRUE(c.training(1));
    c.rank(3).hangs = true;
    c.run(595);
    for (int second = 0; second < 10 && c.leader->attempt() == 1; ++second) {
      if (recorded) report_flights(c);
      c.run(1);
    }
    ASSERT_TRUE(c.training(2));
    const json ended = c.last("attempt_ended");
    EXPECT_EQ(ended["cause"], "rank hung");
    EXPECT_EQ(ended["rank"], recorded ? 3 : 0);
    EXPECT_EQ(ended["node"], recorded ? "n1" : "n0");
    EXPECT_EQ(ended["evidence"][0],
              recorded ? "rank 3 on n1 holds up the others for 600 s: rank 3 has not entered all-gather #812 "
                         "of shard group 0, in which ranks 0, 1, 2, 4, 5 wait"
                       : "rank 0 on n0 has shown no progress for 600 s");
  }
}

TEST(Supervisor, OldFlightRecordsDoNotCount) {
  FakeCluster c;
  c.hung_phase = control::Phase::collective;
  c.waiting_phase = control::Phase::forward;
  ASSERT_TRUE(c.training(1));
  c.rank(3).hangs = true;
  c.run(580);
  report_flights(c);
  report_flights(c, 0, 2);  // another attempt's
  c.run(17);
  report_flights(c, 0, 2);
  c.tell(2, [](Supervisor& s) {  // of a rank that is not there
    s.rank_flight(2, {3, 1, 400000, {}});
    s.rank_flight(2, {6, 1, 400000, {}});
    s.rank_flight(2, {-1, 1, 400000, {}});
  });
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.last("attempt_ended")["rank"], 0);
}

TEST(Supervisor, ASilentProcessIsNamedBeforeAnyRecord) {
  FakeCluster c;
  c.hung_phase = control::Phase::collective;
  c.waiting_phase = control::Phase::forward;
  ASSERT_TRUE(c.training(1));
  c.rank(3).hangs = true;
  c.run(598);
  report_flights(c, 598000);
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.last("attempt_ended")["rank"], 3);
  EXPECT_THAT(std::string(c.last("attempt_ended")["evidence"][0]),
              HasSubstr("the process of rank 3 has not been heard for 598.0 s; rank 3 has not entered"));
}

TEST(Supervisor, WordsOfOtherAttemptsAndRanksAreIgnored) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.end_rank(0, 1);
  ASSERT_TRUE(c.training(2));
  const std::size_t before = c.events.size();
  for (const int attempt : {0, 1, 3}) {
    c.tell(0, [attempt](Supervisor& s) {
      s.rank_started(1, {0, attempt, 1});
      s.rank_exited(0, {0, attempt, 1});
      s.rank_failed(0, {0, attempt, 2, "late"});
      s.rank_finished({0, attempt, control::FinalState{}});
      s.rank_restored({0, attempt, {}});
    });
  }
  for (const int rank : {-1, 6, 1 << 20}) {
    c.tell(0, [rank](Supervisor& s) {
      s.rank_started(0, {rank, 2, 1});
      s.rank_exited(0, {rank, 2, 1});
      s.rank_finished({rank, 2, {}});
      s.heartbeat(0, {"n0", 2, {{rank, 2, 99, control::Phase::forward}}});
    });
  }
  c.run(0.1);
  EXPECT_EQ(c.leader->attempt(), 2);
  for (std::size_t i = before; i < c.events.size(); ++i)
    EXPECT_EQ(c.events[i]["event"], "checkpoint_durable");
  EXPECT_EQ(c.stage(), Stage::running);
}

}  // namespace
}  // namespace holdfast::launcher
