// Ranks that are another program: which facts are unknown, and which orders they do not get.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using control::Drain;
using nlohmann::json;
using test::FakeCluster;
using test::placement_of;
using test::Shape;
using test::sigterm;
using testing::ElementsAre;
using testing::HasSubstr;
using Verb = control::Order::Verb;

/// A program that reports nothing, or one that reports its progress.
Shape silent() { return {.reports = false}; }
Shape speaking() {
  Shape setup;
  setup.facts.promises = test::promises_of_a_program();
  return setup;
}

bool runs(FakeCluster& c, int attempt) {
  return c.until([&] { return c.leader && c.leader->attempt() == attempt && c.stage() == Stage::running; },
                 10);
}
/// Attempt `number` runs for this long; then a rank fails.
void crash(FakeCluster& c, int number, double after_s) {
  ASSERT_TRUE(runs(c, number)) << number << ": " << c.result().dump(1);
  c.run(after_s);
  c.end_rank(number % 6, 1);
  c.run(1);
}
control::OrderTaken give_order(FakeCluster& c, Verb verb, const std::string& node = "") {
  control::OrderTaken answer;
  c.tell(0, [&](Supervisor& s) { answer = s.order({"7", verb, node, "mia@login"}); });
  c.run(0.3);
  return answer;
}
void ask_and_wait(FakeCluster& c, const Drain& what) {
  c.tell(0, [what](Supervisor& s) { s.drain(what); });
  c.run(0.1);
}

/// Every second an agent tells what it sees of its ranks from outside, until their attempt ends; `state`: of
/// a silent rank 3.
void look(FakeCluster& c, int seconds, bool live, double& silent_s, const char* state = "T") {
  for (const int attempt = c.leader->attempt(); seconds > 0 && c.leader->attempt() == attempt; --seconds) {
    silent_s = live ? 0 : silent_s + 1;
    for (int rank = 0; rank < 6; ++rank)
      c.tell(c.leader->placement()[rank / 2], [&, rank](Supervisor& s) {
        s.rank_seen(s.placement()[rank / 2], {rank, s.attempt(), static_cast<std::int64_t>(1e3 * silent_s),
                                              "network", 99, rank == 3 && !live ? state : "R"});
      });
    c.run(1);
  }
}

TEST(Programs, ThatSayNothingAreTakenForHungWhenNothingIsSeenOfThem) {
  Shape setup = silent();
  setup.limits.hang_outside_s = 10;
  FakeCluster c(setup);
  double silent_s = 0;
  ASSERT_TRUE(runs(c, 1));
  look(c, 22, true, silent_s);
  look(c, 9, false, silent_s);
  EXPECT_EQ(c.leader->attempt(), 1);
  look(c, 5, false, silent_s);
  ASSERT_TRUE(runs(c, 2));
  const json ended = c.last("attempt_ended");
  EXPECT_EQ(ended["cause"], "rank hung");
  EXPECT_EQ(ended["rank"], 3);
  EXPECT_EQ(
      ended["evidence"][0],
      "no rank has printed, touched a heartbeat file, or moved bytes over files, network or links for 10.1 s "
      "(10 s are allowed): a process of rank 3 is stopped");
}

TEST(Programs, WhoseRanksAllSpinHaveNobodyToBlame) {
  Shape setup = silent();
  setup.limits.hang_outside_s = 10;
  FakeCluster c(setup);
  double silent_s = 0;
  ASSERT_TRUE(runs(c, 1));
  look(c, 22, true, silent_s);
  look(c, 14, false, silent_s, "R");
  ASSERT_TRUE(runs(c, 2));
  const json ended = c.last("attempt_ended");
  EXPECT_EQ(ended["cause"], "rank hung");
  EXPECT_FALSE(ended.value("blamed", false)) << ended;
  EXPECT_EQ(ended.value("node", ""), "");
  EXPECT_THAT(ended["evidence"], testing::Contains("rank 0 on n0 as one of all:")) << "and its stack";
  EXPECT_TRUE(c.leader->state().failures.empty());
}

TEST(Programs, ThatHangAfterEveryStartComeToAnEnd) {
  Shape setup = silent();
  setup.limits.hang_outside_s = 10;
  FakeCluster c(setup);
  double silent_s = 0;
  ASSERT_TRUE(runs(c, 1));
  look(c, 22, true, silent_s);
  for (int attempt = 1; !c.exit_code && attempt <= 5; ++attempt) {
    ASSERT_TRUE(runs(c, attempt));
    look(c, 3, true, silent_s);
    look(c, 14, false, silent_s);
  }
  EXPECT_EQ(c.exit_code, 93) << "their silence is no progress";
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("3 attempts in a row fell silent within 10 s"));
  EXPECT_NEAR(c.last("attempt_ended")["ran_s"], 3, 1.5);
}

TEST(Programs, ThatShowNoSignOnceTheyHaveStartedAreLeftAloneAfterTwoAttempts) {
  Shape setup = silent();
  setup.limits.hang_outside_s = 10;
  FakeCluster c(setup);
  double silent_s = 0;
  for (int attempt = 1; attempt <= 2; ++attempt) {
    ASSERT_TRUE(runs(c, attempt));
    EXPECT_EQ(c.leader->state().unjudged_s, 0);
    look(c, 22, true, silent_s);
    look(c, 40, false, silent_s, "R");
  }
  ASSERT_TRUE(runs(c, 3));
  const json ended = c.last("attempt_ended");
  EXPECT_NEAR(ended["unjudged_s"], 31, 1.5);
  EXPECT_THAT(
      std::string(ended["evidence"][0]),
      HasSubstr("as in the attempt before. From now on no silence ends an attempt before it has shown "
                "signs of life for 31.0 s"));
  EXPECT_THAT(std::string(ended["advice"]), HasSubstr("$HOLDFAST_HEARTBEAT_FILE"));
  look(c, 22, true, silent_s);
  look(c, 100, false, silent_s, "R");
  c.new_leader(4);
  ASSERT_TRUE(runs(c, 3));
  look(c, 100, false, silent_s, "R");
  EXPECT_EQ(c.leader->attempt(), 3);
  EXPECT_GT(c.leader->state().unjudged_s, 0);

  RunState again = c.replayed();
  apply(again, test::entry({{"event", "settings_changed"}, {"settings", json::object()}}));
  EXPECT_EQ(again.unjudged_s, 0) << "it may have another program, or another hang_outside_s";
  look(c, 15, true, silent_s);
  EXPECT_EQ(c.leader->state().unjudged_s, 0) << "it does show signs";
  look(c, 800, false, silent_s, "R");
  EXPECT_TRUE(runs(c, 4)) << "and is judged by its longest silence so far";
}

TEST(Programs, WhoseRankWasNeverSeenToLiveAreSaidToBeSilent) {
  Shape setup = silent();
  setup.limits.hang_outside_s = 10;
  FakeCluster c(setup);
  double silent_s = 0;
  ASSERT_TRUE(runs(c, 1));
  for (int second = 0; second < 38; ++second) {
    silent_s = second < 22 ? 0 : silent_s + 1;
    for (int rank = 0; rank < 6; ++rank)
      c.tell(rank / 2, [&, rank](Supervisor& s) {
        s.rank_seen(rank / 2, {rank, 1, static_cast<std::int64_t>(1e3 * silent_s), rank == 3 ? "" : "output",
                               99, rank == 3 ? "-" : "R"});
      });
    c.run(1);
  }
  EXPECT_THAT(std::string(c.last("attempt_ended")["evidence"][0]),
              testing::AllOf(HasSubstr("no rank has printed"), HasSubstr("rank 3 cannot be looked at")));
}

TEST(Programs, WhoseFirstRanksHaveEndedAreJudgedByTheOthers) {
  Shape setup = silent();
  setup.limits.hang_outside_s = 10;
  FakeCluster c(setup);
  double silent_s = 0;
  ASSERT_TRUE(runs(c, 1));
  look(c, 22, true, silent_s);
  for (int rank = 2; rank < 6; ++rank) c.end_rank(rank, 0);
  c.run(0.5);
  look(c, 15, false, silent_s);  // looks that had begun tell of ended ranks, too
  ASSERT_TRUE(runs(c, 2));
  EXPECT_THAT(std::string(c.last("attempt_ended")["evidence"][0]), testing::Not(HasSubstr("rank 3")));
}

TEST(Programs, WhoseJobWasSuspendedWereNotSilentThen) {
  Shape setup = silent();
  setup.limits.hang_outside_s = 10;
  FakeCluster c(setup);
  double silent_s = 0;
  ASSERT_TRUE(runs(c, 1));
  look(c, 22, true, silent_s);
  c.now += 7200;  // what agents say next is read before the next tick
  look(c, 3, true, silent_s);
  EXPECT_EQ(c.leader->attempt(), 1);
  look(c, 14, false, silent_s);
  EXPECT_TRUE(runs(c, 2)) << "no longer silence is known";
}

TEST(Programs, ThatReportAreNotLookedAtFromOutside) {
  Shape setup = speaking();
  setup.limits.hang_outside_s = 10;
  FakeCluster c(setup);
  double silent_s = 0;
  ASSERT_TRUE(runs(c, 1));
  look(c, 22, true, silent_s);
  look(c, 30, false, silent_s);
  EXPECT_EQ(c.leader->attempt(), 1);
}

// Their progress.

TEST(Programs, MayCrashAsOftenAsTheyLikeOnceTheyHaveRun) {
  FakeCluster c(silent());
  for (int attempt = 1; attempt <= 30; ++attempt) ASSERT_NO_FATAL_FAILURE(crash(c, attempt, 11));
  ASSERT_TRUE(runs(c, 31));
  EXPECT_FALSE(c.exit_code);
  const json ended = c.last("attempt_ended");
  EXPECT_EQ(ended["reports"], false);
  EXPECT_EQ(ended["progress_assumed"], true);
  EXPECT_NEAR(ended["ran_s"], 11, 1);
  EXPECT_TRUE(c.result()["attempts"][0]["last_step"].is_null()) << "nobody knows it";
}

TEST(Programs, ThatEndWellHaveDoneAnUnknownNumberOfSteps) {
  FakeCluster c(silent());
  ASSERT_TRUE(runs(c, 1));
  c.run(11);
  for (int rank = 0; rank < 6; ++rank) c.end_rank(rank, 0);
  c.run(1);
  ASSERT_EQ(c.exit_code, 0);
  EXPECT_EQ(c.last("attempt_ended")["cause"], "finished");
  EXPECT_NEAR(c.last("attempt_ended")["ran_s"], 11, 1);
  EXPECT_TRUE(c.result()["attempts"][0]["last_step"].is_null());
}

TEST(Programs, ThatCrashAtEveryStartComeToAnEnd) {
  FakeCluster c(silent());
  for (int attempt = 1; attempt <= 3; ++attempt) ASSERT_NO_FATAL_FAILURE(crash(c, attempt, 5));
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_EQ(c.result()["attempts"].size(), 3u);
  EXPECT_THAT(std::string(c.result()["why"]),
              HasSubstr("3 attempts in a row ended within 10 s of their start"));
}

TEST(Programs, MayUseHoldfastsExitCodesForWhatTheyLike) {
  for (const int code : {2, 3, 4, 93}) {
    FakeCluster c(silent());
    ASSERT_TRUE(runs(c, 1));
    c.run(11);
    c.end_rank(0, code);
    ASSERT_TRUE(runs(c, 2)) << code;
    EXPECT_EQ(c.last("attempt_ended")["kind"], "program");
  }
}

TEST(Programs, ThatReportAnExitCodeOfHoldfastMeanIt) {
  FakeCluster c(speaking());
  ASSERT_TRUE(runs(c, 1));
  c.run(11);
  c.tell(0, [](Supervisor& s) { s.rank_failed(0, {0, 1, 93, "the loss is not a number"}); });
  c.run(1);
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("the loss is not a number"));
}

TEST(Programs, ThatCrashSoonOnManyNodesComeToAnEnd) {
  Shape setup = silent();
  setup.limits.max_same_step = 100;
  FakeCluster c(setup);
  for (int attempt = 1; attempt <= 10; ++attempt) ASSERT_NO_FATAL_FAILURE(crash(c, attempt, 5));
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("10 attempts in a row ended within 10 s"));
}

TEST(Programs, ALongAttemptBreaksTheRowOfShortOnes) {
  FakeCluster c(silent());
  for (int attempt = 1; attempt <= 24; ++attempt)
    ASSERT_NO_FATAL_FAILURE(crash(c, attempt, attempt % 3 == 0 ? 11 : 2));
  EXPECT_FALSE(c.exit_code);
}

TEST(Programs, RunOnUnderTheNextLeader) {
  Shape setup = silent();
  setup.limits.max_same_step = 1;
  FakeCluster c(setup);
  ASSERT_TRUE(runs(c, 1));
  c.run(6);
  c.new_leader(1);
  ASSERT_TRUE(runs(c, 1));
  ASSERT_NO_FATAL_FAILURE(crash(c, 1, 6));
  EXPECT_TRUE(runs(c, 2)) << "it ran for 12 s under both leaders";
}

TEST(Programs, ThatSpeakAreHeldToWhatTheySay) {
  Shape setup = speaking();
  setup.limits.assumed_progress_s = 0;
  FakeCluster c(setup);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_TRUE(runs(c, attempt));
    ASSERT_TRUE(c.until([&] { return c.rank(0).step == 5; }, 10));
    c.rank(0).hangs = true;
    c.run(2);
    c.end_rank(1, 1);
    c.run(1);
    EXPECT_EQ(c.last("attempt_ended")["step"], 5);
    EXPECT_FALSE(c.last("attempt_ended").contains("reports"));
  }
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("ended at step"));
}

// How they are ended.

TEST(Programs, AreGivenTheTimeOfASaveAndTheLastOneIsWaitedFor) {
  FakeCluster c(silent());
  ASSERT_TRUE(runs(c, 1));
  c.run(1);
  ask_and_wait(c, sigterm);
  EXPECT_EQ(c.leader->state().asked_of_ranks(), sigterm);
  for (const int rank : {1, 2, 3}) c.end_rank(rank, 143);  // of SIGTERM
  c.end_rank(4, 1), c.end_rank(5, 75);
  EXPECT_FALSE(over(c, 15)) << "rank 0 saves";
  c.end_rank(0, 0);
  ASSERT_TRUE(over(c, 1));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.result()["status"], "drained") << "an end with 0 after SIGTERM is not the end of the run";
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("what the program saved is not known to Holdfast"));
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("its ranks ended within 15."));
  EXPECT_EQ(c.result()["attempts"].size(), 1u);
}

TEST(Programs, ThatEndBeforeTheLeaderHasHeardOfTheSignal) {
  FakeCluster c(silent());
  ASSERT_TRUE(runs(c, 1));
  c.end_rank(3, 143);  // SLURM has signalled it, too
  ask_and_wait(c, sigterm);
  c.run(2);
  EXPECT_FALSE(c.exit_code) << "the others save";
  for (int rank = 0; rank < 6; ++rank) c.end_rank(rank, 0);
  ASSERT_TRUE(over(c, 1));
  EXPECT_EQ(c.exit_code, 75);
}

TEST(Programs, AreNotWaitedForLongerThanThat) {
  FakeCluster c(silent());
  ASSERT_TRUE(runs(c, 1));
  EXPECT_THAT(give_order(c, Verb::stop).says, HasSubstr("SIGTERM and 25 s"));
  for (const int rank : {0, 1, 2, 3}) c.end_rank(rank, 0);
  for (int rank = 0; rank < 6; ++rank)
    c.tell(rank / 2, [rank](Supervisor& s) { s.rank_heard({rank, 1, control::RankHeard::What::sigterm}); });
  EXPECT_FALSE(over(c, 24));
  ASSERT_TRUE(over(c, 2));
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("2 of 6 ranks had not ended 25.0 s after SIGTERM"));
}

TEST(Programs, AreWaitedForByTheNextLeaderToo) {
  FakeCluster c(silent());
  ASSERT_TRUE(runs(c, 1));
  ask_and_wait(c, sigterm);
  for (const int rank : {1, 2, 3, 4, 5}) c.end_rank(rank, 143);
  c.run(0.5);
  c.new_leader(1);
  EXPECT_FALSE(over(c, 10));
  EXPECT_EQ(c.leader->attempt(), 1);
  c.end_rank(0, 0);
  ASSERT_TRUE(over(c, 5));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.result()["attempts"].size(), 1u);
}

TEST(Programs, ThatDoNotRunHaveNothingToSave) {
  FakeCluster c(silent());
  c.agent(1).starts = false;
  ASSERT_TRUE(c.until(Stage::starting));
  c.kill(1);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2 && c.stage() == Stage::clearing; }, 10));
  ask_and_wait(c, sigterm);
  ASSERT_TRUE(over(c, 0.3));
  EXPECT_EQ(c.exit_code, 75);
}

TEST(Programs, ThatSpeakSaveAndLeaveByThemselves) {
  FakeCluster c(speaking());
  ASSERT_TRUE(c.training(1));
  ask_and_wait(c, sigterm);
  ASSERT_TRUE(over(c, 3));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.result()["durable_step"], c.durable);
}

TEST(Programs, GetTheirTimeBeforeHardwareThatDies) {
  FakeCluster c(silent());
  ASSERT_TRUE(runs(c, 1));
  c.tell(1, [](Supervisor& s) {
    s.node_signs(1, {{control::Sign{"row_remap_failure", -1, 0, 100, "GPU 3"}}});
  });
  c.run(5);
  EXPECT_EQ(c.leader->attempt(), 1) << "they save";
  for (int rank = 0; rank < 6; ++rank) c.end_rank(rank, 0);
  ASSERT_TRUE(runs(c, 2));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2"));
  EXPECT_EQ(c.result()["attempts"][0]["cause"], "evicted");
}

// Orders that they do not get are refused.

TEST(Programs, OrdersThatNobodyWouldFollowAreRefused) {
  FakeCluster c(silent());
  for (const bool up : {false, true}) {
    if (up) {
      ASSERT_TRUE(runs(c, 1));
    } else {
      ASSERT_TRUE(c.until(Stage::starting));
    }
    for (const auto& answer :
         {give_order(c, Verb::save), give_order(c, Verb::pause), give_order(c, Verb::evict, "n1")}) {
      EXPECT_FALSE(answer.taken);
      EXPECT_THAT(answer.says, HasSubstr("does not report to its agents"));
    }
  }
  EXPECT_TRUE(give_order(c, Verb::resume).taken) << "it is not paused";
  EXPECT_TRUE(give_order(c, Verb::spares).taken);
  EXPECT_TRUE(give_order(c, Verb::evict, "n4").taken) << "a spare holds no rank";
  EXPECT_TRUE(c.leader->state().evicted.contains("n4"));
  c.run(5);
  EXPECT_EQ(c.leader->attempt(), 1);
  EXPECT_TRUE(c.all("paused").empty() && c.all("drain").empty() && c.all("eviction_ordered").empty());
  EXPECT_TRUE(give_order(c, Verb::stop).taken);
}

TEST(Programs, ThatSpeakFollowOrders) {
  FakeCluster c(speaking());
  ASSERT_TRUE(c.until(Stage::starting));
  EXPECT_FALSE(give_order(c, Verb::pause).taken) << "nothing was heard of them so far";
  ASSERT_TRUE(c.training(1));
  c.run(0.5);  // until each rank has reported
  const auto saves = give_order(c, Verb::save);
  EXPECT_TRUE(saves.taken) << saves.says;
  ASSERT_TRUE(c.until([&] { return !c.leader->state().drain; }, 3));
  EXPECT_TRUE(give_order(c, Verb::pause).taken);
  EXPECT_TRUE(give_order(c, Verb::resume).taken);
  EXPECT_TRUE(give_order(c, Verb::evict, "n1").taken);
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2"));
}

// Those that speak.

TEST(Programs, ThatSpeakEndOnOrderOneAfterAnotherAndAllAreWaitedFor) {
  FakeCluster c(speaking());
  ASSERT_TRUE(runs(c, 1));
  ASSERT_TRUE(c.until([&] { return c.rank(0).step >= 3; }, 10));
  for (int rank = 0; rank < 6; ++rank) c.rank(rank).hangs = true;  // this test ends them
  EXPECT_TRUE(give_order(c, Verb::stop).taken);
  c.end_rank(1, 75);
  c.run(1);
  EXPECT_FALSE(c.exit_code) << "the others save";
  for (const int rank : {0, 2, 3}) c.end_rank(rank, 0);
  c.end_rank(4, 1);  // it has lost its peers
  c.run(1);
  EXPECT_FALSE(c.exit_code);
  c.end_rank(5, 75);
  ASSERT_TRUE(over(c, 1));
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_EQ(c.result()["status"], "stopped");
  EXPECT_EQ(c.result()["attempts"].size(), 1u);
}

TEST(Programs, ThatSpeakMayCrashAsOftenAsTheyStepForward) {
  Shape setup = speaking();
  setup.local = true;
  setup.checkpoint_every = 1000000;  // what they save they do not say
  FakeCluster c(setup);
  for (int attempt = 1; attempt <= 30; ++attempt) {
    ASSERT_TRUE(c.training(attempt)) << attempt << ": " << c.result().dump(1);
    c.run(0.5);
    c.end_rank(attempt % 6, 1);
    c.run(0.2);
  }
  ASSERT_TRUE(c.training(31));
  EXPECT_FALSE(c.exit_code);
}

TEST(Programs, ThatAreSavingWhenAnOrderEndsThemAreWaitedFor) {
  for (const bool by_order : {true, false}) {
    Shape setup = speaking();
    setup.limits.hang_floor_s = 1000;
    FakeCluster c(setup);
    c.hung_phase = c.waiting_phase = control::Phase::checkpoint;
    ASSERT_TRUE(runs(c, 1));
    ASSERT_TRUE(c.until([&] { return c.rank(0).step >= 3; }, 10));
    for (int rank = 0; rank < 6; ++rank) c.rank(rank).hangs = true;
    c.run(0.5);
    if (by_order)
      EXPECT_TRUE(give_order(c, Verb::stop).taken);
    else
      ask_and_wait(c, sigterm);
    EXPECT_EQ(over(c, 40), !by_order) << "SLURM would not wait";
    if (!by_order) continue;
    c.hung_phase = c.waiting_phase = control::Phase::data;
    ASSERT_TRUE(over(c, 2)) << "its time is up";
    EXPECT_EQ(c.exit_code, 93);
  }
}

TEST(Programs, ThatSpeakAndEndWith0AreNotDoneWhenTheyWereToldToEnd) {
  FakeCluster c(speaking());
  ASSERT_TRUE(runs(c, 1));
  ASSERT_TRUE(c.until([&] { return c.rank(0).step >= 3; }, 10));
  for (int rank = 0; rank < 6; ++rank) c.rank(rank).hangs = true;
  ask_and_wait(c, sigterm);
  for (int rank = 0; rank < 6; ++rank) c.end_rank(rank, 0);
  ASSERT_TRUE(over(c, 1));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.result()["status"], "drained");
}

TEST(Programs, ThatSaveOnSigtermLeaveANodeOnOrder) {
  Shape setup = silent();
  setup.facts.promises = test::promises_of_a_program(config::RankKind::sigterm);
  FakeCluster c(setup);
  ASSERT_TRUE(runs(c, 1));
  const auto answer = give_order(c, Verb::evict, "n1");
  EXPECT_TRUE(answer.taken) << answer.says;
  EXPECT_THAT(answer.says, HasSubstr("they get SIGTERM"));
  EXPECT_FALSE(give_order(c, Verb::save).taken) << "it would end";
  for (int rank = 0; rank < 6; ++rank) c.end_rank(rank, 143);
  ASSERT_TRUE(runs(c, 2));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2"));
}

}  // namespace
}  // namespace holdfast::launcher
