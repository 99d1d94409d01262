// Ranks that do not report: when their silence is a hang, and whose.
#include "launcher/supervise/outside_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using testing::HasSubstr;

/// Four ranks on two nodes, looked at every second; bounds of 10 s and three times the longest silence.
class RanksSeen : public testing::Test {
 protected:
  static config::Supervise limits() {
    config::Supervise limits;
    limits.hang_outside_s = 10;
    return limits;
  }
  /// Looks at all ranks every second until `end`; `live`: they show a sign at each look.
  void look(double end, bool live, int except = -1) {
    for (; now < end; now += 1)
      for (int r = 0; r < world; ++r) {
        if (live && r != except) life[r] = now;
        watch.seen(r / 2, {r, 1, static_cast<std::int64_t>(1e3 * (now - life[r])), sign, cpu[r], state[r]},
                   now);
      }
  }
  std::optional<OutsideWatch::Silence> overdue() const { return watch.overdue(world, now); }
  int world = 4;
  double now = 100;
  std::string sign = "network";
  std::map<int, double> life;
  std::map<int, std::int64_t> cpu = {{0, 99}, {1, 99}, {2, 99}, {3, 99}};
  std::map<int, std::string> state = {{0, "R"}, {1, "R"}, {2, "R"}, {3, "R"}};
  OutsideWatch watch{limits(), {}};
};

TEST_F(RanksSeen, NothingIsJudgedBeforeLifeWasSeenForTwiceTheFloor) {
  look(119, true);
  look(400, false);
  EXPECT_FALSE(overdue()) << "a program may show signs at its start alone";
  EXPECT_FALSE(watch.known());
  look(421, true);
  look(424, false);
  EXPECT_FALSE(overdue());
  EXPECT_TRUE(watch.known()) << "the silence in between is part of its life";
}

TEST_F(RanksSeen, ASilenceLongerThanTheFloorIsAHang) {
  look(130, true);
  look(139, false);
  EXPECT_FALSE(overdue());
  look(142, false);
  ASSERT_TRUE(overdue());
  EXPECT_EQ(overdue()->bound_s, 10);
  EXPECT_EQ(overdue()->why, "") << "all spin: nobody is known";
  EXPECT_FALSE(overdue()->named);
}

TEST_F(RanksSeen, LongerSilencesThanBeforeAreAllowedThreefold) {
  look(115, true);
  look(123, false);
  look(140, true);
  look(160, false);
  EXPECT_FALSE(overdue());
  look(168, false);
  ASSERT_TRUE(overdue());
  EXPECT_EQ(overdue()->bound_s, 27) << "from 114 to 123";
}

TEST_F(RanksSeen, AFalseAlarmIsNotRaisedAgain) {
  look(130, true);
  look(142, false);
  ASSERT_TRUE(overdue());
  watch.taken_for_hung(*overdue());
  watch.new_attempt();
  look(160, true);
  look(185, false);
  EXPECT_FALSE(overdue());
  look(200, false);
  EXPECT_TRUE(overdue());
}

TEST_F(RanksSeen, HangsDoNotTripleTheBoundAgainAndAgain) {
  for (int attempt = 1; attempt <= 4; ++attempt) {
    look(now + (attempt % 2 == 0 ? 20 : 30), true);
    look(now + 100, false);
    ASSERT_TRUE(overdue());
    EXPECT_EQ(overdue()->bound_s, attempt == 1 ? 10 : 30);
    watch.taken_for_hung(*overdue());
    watch.new_attempt();
  }
  look(now + 45, true);
  look(now + 15, false);
  ASSERT_TRUE(overdue()) << "the attempt has lived past the time where the others fell silent";
  EXPECT_EQ(overdue()->bound_s, 10);
  EXPECT_EQ(watch.known(), 1) << "the next leader knows of real silences only";
}

/// One GPU node whose steps are kernels only: after its start nothing is seen of it.
TEST_F(RanksSeen, TwoSilencesAtOneTimeOfWhichNobodyIsKnownAreNotFollowedByAThird) {
  for (int attempt = 1; attempt <= 2; ++attempt) {
    EXPECT_EQ(watch.unjudged_s(), 0);
    look(now + 28 + attempt, true);
    look(now + 100, false);
    ASSERT_TRUE(overdue());
    watch.taken_for_hung(*overdue());
    watch.new_attempt();
  }
  EXPECT_EQ(watch.unjudged_s(), 29 + 10);
  look(now + 30, true);
  look(now + 10000, false);
  EXPECT_FALSE(overdue());
  EXPECT_FALSE(watch.known());
  look(now + 2, true);
  EXPECT_EQ(watch.unjudged_s(), 0) << "a sign after that time: there are some";
  EXPECT_EQ(watch.known(), 10001);
  EXPECT_TRUE(watch.is_news({}));
}

TEST_F(RanksSeen, SilencesOfRanksThatAreIdleAreJudgedAgainAndAgain) {
  for (int attempt = 1; attempt <= 4; ++attempt) {
    look(now + 30, true);
    cpu = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
    look(now + 100, false);
    ASSERT_TRUE(overdue());
    EXPECT_FALSE(overdue()->named);
    watch.taken_for_hung(*overdue());
    watch.new_attempt();
  }
  EXPECT_EQ(watch.unjudged_s(), 0);
}

TEST_F(RanksSeen, SilencesAfterHoursOfSignsAreJudgedAgainAndAgain) {
  for (int attempt = 1; attempt <= 3; ++attempt) {
    look(now + 4000, true);
    look(now + 100, false);
    ASSERT_TRUE(overdue()) << "no start takes so long";
    watch.taken_for_hung(*overdue());
    watch.new_attempt();
  }
}

TEST_F(RanksSeen, TheNextLeaderKnowsThatSilenceIsNotJudged) {
  watch = OutsideWatch(limits(), {}, 39);
  EXPECT_EQ(watch.unjudged_s(), 39);
  look(130, true);
  look(5000, false);
  EXPECT_FALSE(overdue());
  look(5001, true);
  EXPECT_TRUE(watch.known());
}

TEST_F(RanksSeen, AStoppedRankIsNoSilenceOfAProgramThatIsWell) {
  look(130, true);
  state[2] = "T";
  look(142, false);
  ASSERT_TRUE(overdue());
  watch.taken_for_hung(*overdue());
  watch.new_attempt();
  state[2] = "R";
  look(160, true);
  look(172, false);
  EXPECT_TRUE(overdue());
}

TEST_F(RanksSeen, TheRankThatDoesNotSpinIsNamed) {
  look(130, true);
  cpu[2] = 1;
  look(142, false);
  ASSERT_TRUE(overdue());
  EXPECT_EQ(overdue()->rank, 2);
  EXPECT_THAT(overdue()->why, HasSubstr("uses no processor time while the others spin"));
}

TEST_F(RanksSeen, AStoppedProcessIsNamedBeforeOneThatWaitsInTheKernel) {
  look(130, true);
  state[1] = "D";
  state[3] = "T";
  look(142, false);
  ASSERT_TRUE(overdue());
  EXPECT_EQ(overdue()->rank, 3);
  state[3] = "S";
  look(143, false);
  EXPECT_EQ(overdue()->rank, 1);
}

TEST_F(RanksSeen, ANodeWhoseRanksCannotBeLookedAtIsNamed) {
  look(130, true);
  state[2] = state[3] = control::RankSeen::look_hangs;
  look(142, false);
  ASSERT_TRUE(overdue());
  EXPECT_EQ(overdue()->rank, 2);
  EXPECT_EQ(overdue()->why, "a process of rank 2 cannot be looked at");
}

TEST_F(RanksSeen, WhatHoldsUpSeveralNodesNamesNobody) {
  look(130, true);
  state[1] = state[3] = "D";
  look(142, false);
  ASSERT_TRUE(overdue());
  EXPECT_FALSE(overdue()->named);
  EXPECT_EQ(overdue()->why, "2 of 4 ranks have a process that waits in the kernel");
  state[0] = state[2] = "D";
  look(143, false);
  EXPECT_FALSE(overdue()->named);
  state[0] = state[1] = "R";
  look(144, false);
  EXPECT_TRUE(overdue()->named) << "all of one node";
  EXPECT_EQ(overdue()->rank, 2);
}

TEST_F(RanksSeen, TheRankThatFellSilentFirstIsNamed) {
  look(130, true);
  look(135, true, 1);
  look(147, false);
  ASSERT_TRUE(overdue());
  EXPECT_EQ(overdue()->rank, 1);
  EXPECT_THAT(overdue()->why, HasSubstr("fell silent 5 s before the others"));
}

TEST_F(RanksSeen, WhoIsNotLookedAtMayLive) {
  look(130, true);
  world = 3;
  look(150, false);
  world = 4;
  EXPECT_FALSE(overdue()) << "its agent is silent";
  look(151, false);
  EXPECT_TRUE(overdue());
}

TEST_F(RanksSeen, OneRankOfManyThatPrintsDoesNotHideAHang) {
  world = 16;
  look(130, true);
  for (; now < 145; now += 1)
    for (int r = 0; r < world; ++r)
      watch.seen(r, {r, 1, r == 0 ? 0 : static_cast<std::int64_t>(1e3 * (now - 129)), sign, 99, "R"}, now);
  EXPECT_TRUE(overdue());
}

TEST_F(RanksSeen, AProgramThatShowsSignsAtItsStartOnlyIsNotJudgedAgain) {
  world = 16;
  const auto steps = [this](double end) {  // one rank prints
    for (; now < end; now += 1)
      for (int r = 0; r < world; ++r) {
        if (r == 0) life[r] = now;
        watch.seen(r, {r, 1, static_cast<std::int64_t>(1e3 * (now - life[r])), sign, 99, "R"}, now);
      }
  };
  look(125, true);
  steps(140);
  ASSERT_TRUE(overdue());
  watch.taken_for_hung(*overdue());
  watch.new_attempt();
  look(165, true);
  steps(400);
  EXPECT_FALSE(overdue());
  EXPECT_FALSE(watch.known());
  watch.new_attempt();
  look(450, true);
  EXPECT_TRUE(watch.known()) << "it has shown signs for longer than the start that was doubted";
}

TEST_F(RanksSeen, RanksThatHaveEndedAreNotAwaited) {
  look(130, true);
  watch.ended(3);
  world = 3;
  look(142, false);
  EXPECT_TRUE(overdue());
}

TEST_F(RanksSeen, WhatWasLearnedIsForTheNextLeader) {
  look(115, true);
  look(123, false);
  look(140, true);
  EXPECT_TRUE(watch.is_news({}));
  const std::map<std::string, events::KnownPace> recorded = {
      {OutsideWatch::recorded_as, {*watch.known(), *watch.known()}}};
  EXPECT_FALSE(watch.is_news(recorded));
  watch = OutsideWatch(limits(), recorded);
  look(141, false);
  look(165, false);
  EXPECT_FALSE(overdue());
  look(170, false);
  ASSERT_TRUE(overdue()) << "a hang from before the takeover";
  EXPECT_EQ(overdue()->bound_s, 27);
}

TEST_F(RanksSeen, ALeaderThatStoodStillGivesTheTimeBack) {
  look(130, true);
  look(135, false);
  now += 60;
  watch.extend_deadlines(60, now);
  look(196, false);
  EXPECT_FALSE(overdue());
}

TEST(OutsideWatch, CanBeTurnedOff) {
  config::Supervise limits;
  limits.hang_outside_s = 0;
  OutsideWatch watch(limits, {});
  watch.seen(0, {0, 1, 0, "output", 0, "S"}, 1);
  watch.seen(0, {0, 1, 0, "output", 0, "S"}, 1000);
  watch.seen(0, {0, 1, 900000, "output", 0, "S"}, 1900);
  EXPECT_FALSE(watch.overdue(1, 1900));
}

}  // namespace
}  // namespace holdfast::launcher
