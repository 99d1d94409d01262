#include "launcher/supervise/time_account.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using testing::DoubleNear;

/// A run of four slots in an allocation of five nodes, told by its events.
class TimeAccountTest : public testing::Test {
 protected:
  void at(double second, Event event) {
    LogEntry entry{{}, std::move(event)};
    entry.envelope.unix = 1.7e9 + second;
    account.take(entry);
  }
  void job(double second, const std::string& name) {
    at(second, events::LeaderElected{"n0", name, 1, {}, 5});
  }
  /// Planned, started a second later, up after two more, restored after three more, a step after four more.
  void begins(double second, int attempt, std::int64_t step) {
    at(second, events::AttemptPlanned{attempt, {"n0", "n1", "n2", "n3"}, "", "", 0});
    at(second + 1, events::AttemptStarted{attempt});
    at(second + 3, events::PlacementVerified{attempt, 8});
    at(second + 6, events::Restored{attempt, step, "local", "", ""});
    at(second + 10, events::FirstStep{attempt, step + 1});
  }
  void ends(double second, int attempt, std::int64_t step, const std::string& cause, double detected_s = 0,
            double decided_s = 0) {
    at(second, events::AttemptEnded{.attempt = attempt,
                                    .step = step,
                                    .cause = cause,
                                    .detected_s = detected_s,
                                    .decided_s = decided_s});
  }
  void expect(TimeUse use, double seconds) {
    EXPECT_THAT(account.of(use), DoubleNear(seconds, 1e-3)) << name_of(use);
  }
  ~TimeAccountTest() override {
    double sum = 0;
    for (int use = 0; use < static_cast<int>(TimeUse::count_); ++use)
      sum += account.of(static_cast<TimeUse>(use));
    EXPECT_NEAR(sum, account.total(), 1e-3);
  }
  TimeAccount account;
};

TEST_F(TimeAccountTest, OfARunWithoutFaults) {
  job(0, "7");
  begins(5, 1, 0);
  ends(115, 1, 100, "finished");
  at(117, events::RunFinished{0, "done", "", {}});
  expect(TimeUse::gather, 5);
  expect(TimeUse::clear, 1);
  expect(TimeUse::launch, 9);  // a fresh start restores nothing
  expect(TimeUse::restore, 0);
  expect(TimeUse::productive, 100);
  expect(TimeUse::end, 2);
  EXPECT_NEAR(account.goodput(), 100.0 / 117, 1e-6);
  EXPECT_NEAR(account.goodput_of_nodes(), 100.0 * 4 / (117 * 5), 1e-6);
}

TEST_F(TimeAccountTest, OfANodeThatIsLostAndAHang) {
  job(0, "7");
  begins(0, 1, 0);
  ends(112, 1, 100, "node lost", 2);
  begins(112, 2, 90);
  ends(142, 2, 110, "rank hung", 9, 1);
  begins(142, 3, 110);
  expect(TimeUse::detect, 2);
  expect(TimeUse::hung, 8);
  expect(TimeUse::decide, 1);
  expect(TimeUse::redone, 10);  // 10 of 100 steps that took 100 s
  expect(TimeUse::productive, 90 + 11);
}

TEST_F(TimeAccountTest, StepsOfSeveralAttemptsAreDoneAgain) {
  job(0, "7");
  begins(0, 1, 0);
  ends(110, 1, 100, "rank failed");
  begins(110, 2, 100);
  ends(130, 2, 110, "rank failed");
  begins(130, 3, 50);
  expect(TimeUse::redone, 50 + 10);
  expect(TimeUse::productive, 50);
}

TEST_F(TimeAccountTest, AJobThatEndsWithoutAWordLosesWhatWasNotDurable) {
  job(0, "7");
  begins(0, 1, 0);
  at(70, events::CheckpointDurable{1, 60, ""});
  at(90, events::PaceKnown{1, {}});  // its last word
  job(500, "7.1");
  begins(500, 2, 60);
  expect(TimeUse::queue, 410);
  expect(TimeUse::productive, 60);
  expect(TimeUse::redone, 20);
}

TEST_F(TimeAccountTest, PausesAndSmallerWorlds) {
  job(0, "7");
  begins(0, 1, 0);
  at(20, events::Paused{});
  at(50, events::Resumed{});
  ends(60, 1, 20, "node lost");
  at(60, events::RunShrunk{2, 4, 2, ""});
  begins(60, 2, 20);
  ends(110, 2, 40, "finished");
  expect(TimeUse::paused, 30);
  expect(TimeUse::productive, 20 + 20);
  expect(TimeUse::shrunk, 20);
}

TEST_F(TimeAccountTest, StallsOfSavesAreNoProductiveTime) {
  job(0, "7");
  begins(0, 1, 0);
  at(30, events::CheckpointDurable{1, 20, "", 4});
  at(50, events::CheckpointDropped{1, 40, "full", 6});
  ends(110, 1, 100, "node lost", 2);
  at(111, events::CheckpointDropped{1, 60, "late", 5});
  expect(TimeUse::saves, 10);
  expect(TimeUse::detect, 2);
  expect(TimeUse::productive, 100 - 10 - 2);
  begins(111, 2, 50);
  expect(TimeUse::saves, 10);
  expect(TimeUse::redone, 44);
}

TEST_F(TimeAccountTest, AStallIsNoLongerThanTheStepsBeforeIt) {
  job(0, "7");
  begins(0, 1, 0);
  at(13, events::CheckpointDurable{1, 3, "", 1000});
  expect(TimeUse::saves, 3);
  expect(TimeUse::productive, 0);
}

TEST_F(TimeAccountTest, WhatGoesOnCountsUntilItWasSeenLast) {
  job(0, "7");
  begins(0, 1, 0);
  account.pass(1.7e9 + 60);
  expect(TimeUse::productive, 50);
  account.pass(1.7e9 + 20);
  expect(TimeUse::productive, 50);
  EXPECT_NEAR(account.goodput_of_nodes(), 50.0 * 4 / (60 * 5), 1e-6);
}

TEST_F(TimeAccountTest, ATakeoverInterruptsNothing) {
  job(0, "7");
  begins(0, 1, 0);
  job(50, "7");
  at(51, events::AttemptAdopted{1, 40});
  ends(110, 1, 100, "finished");
  expect(TimeUse::productive, 100);
}

TEST_F(TimeAccountTest, OfAProgramThatDoesNotReport) {
  job(0, "7");
  at(0, events::AttemptPlanned{1, {"n0", "n1", "n2", "n3"}, "", "", 0});
  at(1, events::AttemptStarted{1});
  at(3, events::PlacementVerified{1, 8});
  at(63, events::AttemptEnded{.attempt = 1, .cause = "rank failed", .reports = false, .ran_s = 60});
  at(63, events::AttemptPlanned{2, {"n0", "n1", "n2", "n3"}, "", "", 0});
  at(64, events::AttemptStarted{2});
  at(66, events::PlacementVerified{2, 8});
  ends(100, 2, 0, "finished");
  expect(TimeUse::productive, 60 + 34);
}

TEST_F(TimeAccountTest, ProgramsThatDoNotReportRunUntilNow) {
  job(0, "7");
  at(0, events::AttemptPlanned{1, {"n0", "n1", "n2", "n3"}, "", "", 0});
  at(1, events::AttemptStarted{1});
  at(3, events::PlacementVerified{1, 8});
  for (const double second : {23.0, 63.0, 63.0}) {
    account.pass_running(1.7e9 + second);
    expect(TimeUse::productive, second - 3);
    expect(TimeUse::restore, 0);
  }
}

TEST_F(TimeAccountTest, OnlyWhatIsRestoredIsARestore) {
  job(0, "7");
  begins(0, 1, 0);
  ends(20, 1, 10, "node lost");
  begins(20, 2, 10);
  expect(TimeUse::launch, 9 + 2);
  expect(TimeUse::restore, 7);
}

}  // namespace
}  // namespace holdfast::launcher
