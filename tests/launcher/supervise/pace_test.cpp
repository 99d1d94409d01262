// When a phase has taken too long: the learned deadlines, and an hour
// on a loaded machine without any fault.
#include "launcher/supervise/pace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "launcher/supervise/slow_watch.hpp"

namespace holdfast::launcher {
namespace {

using control::Phase;
constexpr Phase learned[] = {Phase::data,       Phase::forward,   Phase::backward,
                             Phase::collective, Phase::optimizer, Phase::checkpoint};

/// Every rank of `world` leaves `phase` this many times.
void rounds(Pace& pace, Phase phase, double seconds, int count, int world = 1) {
  for (int i = 0; i < count * world; ++i) pace.left(phase, seconds);
}

TEST(Pace, APhaseIsKnownAfterThreeRoundsOfTheWorld) {
  for (const Phase phase : learned) {
    Pace pace({}, 4);
    EXPECT_EQ(pace.deadline_s(phase), 600);
    rounds(pace, phase, 4, 2, 4);
    for (int i = 0; i < 3; ++i) pace.left(phase, 4);
    EXPECT_EQ(pace.deadline_s(phase), 600) << "one rank has left it twice only";
    pace.left(phase, 4);
    EXPECT_EQ(pace.deadline_s(phase), 12);
  }
}

TEST(Pace, APartOfAStepTakesNoLongerThanSteps) {
  // Steps of milliseconds: beats see one phase often and another hardly ever.
  Pace pace({}, 4);
  for (int i = 0; i < 11; ++i) pace.stepped(0.25);
  EXPECT_EQ(pace.deadline_s(Phase::forward), 600);
  pace.stepped(4);
  for (const Phase phase :
       {Phase::data, Phase::forward, Phase::backward, Phase::collective, Phase::optimizer})
    EXPECT_EQ(pace.deadline_s(phase), 12);
  EXPECT_EQ(pace.deadline_s(Phase::checkpoint), 600) << "no part of every step";
  rounds(pace, Phase::forward, 2, 3, 4);
  EXPECT_EQ(pace.deadline_s(Phase::forward), 6) << "better known by itself";
  pace.new_attempt();
  EXPECT_EQ(pace.deadline_s(Phase::data), 24) << "young";
}

TEST(Pace, TheDeadlineIsAFactorAFloorAndAtMostTheStepsLimit) {
  config::Supervise limits;
  limits.hang_factor = 2;
  limits.hang_floor_s = 7;
  limits.step_s = 50;
  Pace pace(limits);
  EXPECT_EQ(pace.deadline_s(Phase::data), 50);
  rounds(pace, Phase::data, 0.01, 3);
  EXPECT_EQ(pace.deadline_s(Phase::data), 7);
  pace.left(Phase::data, 4);
  EXPECT_EQ(pace.deadline_s(Phase::data), 8);
  pace.left(Phase::data, 40);
  EXPECT_EQ(pace.deadline_s(Phase::data), 50);
}

TEST(Pace, WhatComesOnceInAnAttemptIsNeverLearned) {
  Pace pace({});
  for (const Phase phase : {Phase::starting, Phase::restoring, Phase::finishing, Phase::paused})
    rounds(pace, phase, 0.1, 100);
  for (const Phase phase : {Phase::starting, Phase::restoring, Phase::finishing, Phase::paused})
    EXPECT_EQ(pace.deadline_s(phase), 600);
}

TEST(Pace, OneLongPhaseIsForgottenByRoundsAndNotByRanks) {
  for (const int world : {1, 64}) {
    Pace pace({}, world);
    rounds(pace, Phase::data, 2, 3, world);
    pace.left(Phase::data, 40);
    rounds(pace, Phase::data, 2, 100, world);
    EXPECT_NEAR(pace.deadline_s(Phase::data), 60, 1) << "half of it, of " << world << " ranks";
    rounds(pace, Phase::data, 2, 1000, world);
    EXPECT_NEAR(pace.deadline_s(Phase::data), 6, 1e-9);
  }
}

TEST(Pace, TheFirstRoundsOfAnAttemptAreSlowAndTeachOnlyForTheNext) {
  Pace pace({}, 2);
  rounds(pace, Phase::forward, 2, 10, 2);
  EXPECT_NEAR(pace.deadline_s(Phase::forward), 6, 1e-9);
  pace.new_attempt();
  EXPECT_NEAR(pace.deadline_s(Phase::forward), 12, 1e-9) << "cold";
  rounds(pace, Phase::forward, 5, 3, 2);
  EXPECT_NEAR(pace.deadline_s(Phase::forward), 6, 1e-9) << "as before: those were the first ones";
  pace.new_attempt();
  EXPECT_NEAR(pace.deadline_s(Phase::forward), 30, 1e-9) << "it was so slow the last time";
}

TEST(Pace, WhatIsRecordedIsWhatTheNextLeaderKnows) {
  Pace pace({}, 2);
  rounds(pace, Phase::forward, 4, 3, 2);
  EXPECT_FALSE(pace.is_news({})) << "whole steps are not known: they stand in for all parts of a step";
  for (int i = 0; i < 6; ++i) pace.stepped(7);
  EXPECT_TRUE(pace.is_news({}));
  const auto recorded = pace.known();
  ASSERT_EQ(recorded.size(), 2u);
  EXPECT_EQ(recorded.at("forward").longest, 4);
  EXPECT_EQ(recorded.at("step").longest, 7);
  EXPECT_FALSE(pace.is_news(recorded));

  Pace next({}, 2);
  next.recall(recorded);
  EXPECT_NEAR(next.deadline_s(Phase::forward), 24, 1e-9) << "an attempt that begins under it is young";
  next.settled();
  EXPECT_NEAR(next.deadline_s(Phase::forward), 12, 1e-9) << "one that it adopts is not";
  EXPECT_NEAR(next.deadline_s(Phase::data), 21, 1e-9);
  EXPECT_EQ(next.deadline_s(Phase::checkpoint), 600) << "it was not known";
  EXPECT_FALSE(next.is_news(recorded));
}

TEST(Pace, OnlyWhatChangesDeadlinesIsNews) {
  Pace pace({});
  for (int i = 0; i < 3; ++i) pace.stepped(0.1), pace.left(Phase::forward, 0.1);
  const auto recorded = pace.known();
  for (int i = 0; i < 10; ++i) pace.left(Phase::forward, 1.5);
  EXPECT_FALSE(pace.is_news(recorded)) << "hang_floor_s is still the deadline";
  pace.left(Phase::forward, 2);
  EXPECT_FALSE(pace.is_news(recorded)) << "6 s instead of 5";
  pace.left(Phase::forward, 2.2);
  EXPECT_TRUE(pace.is_news(recorded));
  const auto slow = pace.known();
  rounds(pace, Phase::forward, 0.1, 20);
  EXPECT_FALSE(pace.is_news(slow)) << "a little shorter";
  rounds(pace, Phase::forward, 0.1, 200);
  EXPECT_FALSE(pace.is_news(slow)) << "6.6 s would be 5: nothing is lost";
  pace.left(Phase::forward, 9);
  const auto slower = pace.known();
  EXPECT_TRUE(pace.is_news(slow));
  rounds(pace, Phase::forward, 0.1, 100);
  EXPECT_TRUE(pace.is_news(slower)) << "27 s would be 13.5";
  pace.left(Phase::checkpoint, 10);
  pace.left(Phase::checkpoint, 10);
  const auto known = pace.known();
  EXPECT_FALSE(known.contains("checkpoint"));
  pace.left(Phase::checkpoint, 10);
  EXPECT_TRUE(pace.is_news(known)) << "a phase that was not known";
}

TEST(Pace, TheFirstRoundsOfAnAttemptAreRecordedToo) {
  Pace pace({});
  for (int i = 0; i < 10; ++i) pace.stepped(1);
  const auto recorded = pace.known();
  pace.new_attempt();
  pace.stepped(20);
  EXPECT_TRUE(pace.is_news(recorded));
  EXPECT_EQ(pace.known().at("step").first, 20);
  Pace next({});
  next.recall(pace.known());
  EXPECT_EQ(next.deadline_s(Phase::data), 120) << "twice what the first rounds may take";
}

/// A pace with learned times: forward and collective 1 s, checkpoints 10 s.
Pace usual() {
  Pace pace({});
  for (const Phase phase : learned) rounds(pace, phase, phase == Phase::checkpoint ? 10 : 1, 10);
  return pace;
}

TEST(Overdue, WhoIsPastItsDeadlineAndNobodyHoldsItUp) {
  const Pace pace = usual();
  const std::vector<StillRank> all_at_work = {{0, 7, Phase::forward, 4.9}, {1, 7, Phase::collective, 4.9}};
  EXPECT_FALSE(overdue(all_at_work, pace));
  const std::vector<StillRank> one_hangs = {{0, 7, Phase::forward, 5.1}, {1, 7, Phase::collective, 5.0}};
  EXPECT_EQ(overdue(one_hangs, pace), 5);
  const std::vector<StillRank> all_wait = {{0, 7, Phase::collective, 5.1}, {1, 7, Phase::collective, 5.0}};
  EXPECT_EQ(overdue(all_wait, pace), 5);
  EXPECT_FALSE(overdue({}, pace));
}

TEST(Overdue, WhoWaitsIsExcusedByTheOneItWaitsForUntilThatIsLateItself) {
  const Pace pace = usual();
  struct Case {
    const char* what;
    StillRank waits, works;
    bool excused;
  };
  const Case cases[] = {
      {"one still writes a checkpoint", {0, 8, Phase::forward, 9}, {1, 8, Phase::checkpoint, 10}, true},
      {"for too long", {0, 8, Phase::forward, 29}, {1, 8, Phase::checkpoint, 30.1}, false},
      {"one is a step behind", {0, 8, Phase::forward, 9}, {1, 7, Phase::optimizer, 4}, true},
      {"and hangs there", {0, 8, Phase::forward, 9}, {1, 7, Phase::optimizer, 6}, false},
      {"one computes more micro-batches", {0, 8, Phase::collective, 9}, {1, 8, Phase::backward, 0.2}, true},
      {"one waits as well, a step behind", {0, 8, Phase::forward, 9}, {1, 7, Phase::collective, 4}, false},
      {"one is ahead", {0, 8, Phase::forward, 9}, {1, 9, Phase::data, 1}, false},
      {"both compute the same step", {0, 8, Phase::forward, 9}, {1, 8, Phase::backward, 4}, false},
  };
  for (const Case& c : cases) EXPECT_EQ(!overdue(std::vector{c.waits, c.works}, pace), c.excused) << c.what;
}

// --- a loaded hour
// -------------------------------------------------------------------------------------------------

/// Ranks that share too few cores: what a phase takes is log-normal about its usual time, that time swells
/// and ebbs with the load, and now and then a rank gets no core for seconds.
class LoadedHour {
 public:
  LoadedHour(double step_s, unsigned seed) : step_s_(step_s), random_(seed) {}

  /// One step of all ranks as the leader sees it; the alarms that it raised.
  int step(Pace& pace, Stragglers& stragglers) {
    const double load =
        1 + 3 * (1 - std::cos(2 * M_PI * now_ / 900));  // 1 to 7 and back in a quarter of an hour
    int alarms = 0;
    double slowest = 0;
    std::array<double, world> computed{};
    for (std::size_t r = 0; r < world; ++r)
      for (const auto& [phase, share] : shares) {
        const double seconds = share * step_s_ * load * std::exp(0.4 * normal_(random_)) + stall();
        alarms += seconds > pace.deadline_s(phase);
        pace.left(phase, seconds);
        computed[r] += seconds;
        slowest = std::max(slowest, computed[r]);
      }
    for (std::size_t r = 0; r < world; ++r) {
      const double waited = slowest - computed[r] + 0.01;
      alarms += waited > pace.deadline_s(Phase::collective);
      pace.left(Phase::collective, waited);
      stragglers.computed(static_cast<int>(r), step_, computed[r]);
    }
    while (stragglers.take()) ++alarms;
    now_ += slowest;
    ++step_;
    return alarms;
  }
  double now() const { return now_; }
  std::int64_t steps() const { return step_; }

 private:
  static constexpr std::size_t world = 32;
  static constexpr std::pair<Phase, double> shares[] = {
      {Phase::data, 0.02}, {Phase::forward, 0.3}, {Phase::backward, 0.6}, {Phase::optimizer, 0.08}};
  /// Pareto: one in 300 phases loses 50 ms or more, up to what an agent would take for a dead node.
  double stall() {
    if (uniform_(random_) > 1.0 / 300) return 0;
    return std::min(2.0, 0.05 / std::pow(1 - uniform_(random_), 1 / 1.2));
  }
  double step_s_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_{0, 1};
  double now_ = 0;
  std::int64_t step_ = 0;
};

TEST(Pace, ALoadedHourRaisesNoAlarm) {
  for (const double step_s : {0.05, 0.5, 4.0})
    for (const unsigned seed : {1u, 2u, 3u}) {
      LoadedHour hour(step_s, seed);
      Pace pace({}, 32);
      Stragglers stragglers({}, 32);
      int alarms = 0;
      while (hour.now() < 3600) alarms += hour.step(pace, stragglers);
      EXPECT_EQ(alarms, 0) << "steps of " << step_s << " s, seed " << seed << ", " << hour.steps()
                           << " steps";
      EXPECT_LE(pace.deadline_s(Phase::data), 20) << "and a hang would still be seen";
    }
}

TEST(Pace, ALoadedHourIsRecordedInFewLines) {
  for (const double step_s : {0.05, 0.5, 4.0}) {
    LoadedHour hour(step_s, 1);
    Pace pace({}, 32);
    Stragglers stragglers({}, 32);
    std::map<std::string, events::KnownPace> recorded;
    int lines = 0;
    while (hour.now() < 3600) {
      const double before = hour.now();
      hour.step(pace, stragglers);
      for (int rank = 0; rank < 32; ++rank) pace.stepped(hour.now() - before);
      if (pace.is_news(recorded)) {
        recorded = pace.known();
        ++lines;
      }
    }
    EXPECT_GE(lines, 1);
    EXPECT_LE(lines, 120) << "steps of " << step_s << " s";
  }
}

}  // namespace
}  // namespace holdfast::launcher
