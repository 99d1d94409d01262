#include "launcher/supervise/clear_watch.hpp"

#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using Finding = ClearWatch::Finding;
constexpr double told_at = 1000;  // of the limits: 60 s for a node, 600 s for the infrastructure

class OldRanks : public testing::Test {
 protected:
  Finding after(double seconds, int uncleared, int placed, double spent_s = 0) {
    return clear.judge(uncleared, placed, told_at, spent_s, told_at + seconds);
  }
  ClearWatch clear{config::Supervise()};
};

TEST_F(OldRanks, ANodeIsToBlameWhereMostOthersHaveEndedTheirs) {
  EXPECT_EQ(after(60, 1, 3), Finding::nothing);
  EXPECT_EQ(after(60.1, 1, 3), Finding::node);
  EXPECT_EQ(after(60.1, 63, 127), Finding::node);
  EXPECT_EQ(after(1e6, 0, 3), Finding::nothing);
}

TEST_F(OldRanks, NoneIsToBlameWhereHalfOrMoreHaveNot) {
  for (const auto& [uncleared, placed] : {std::pair{1, 1}, {1, 2}, {2, 2}, {2, 4}, {64, 127}, {127, 127}}) {
    EXPECT_EQ(after(60, uncleared, placed), Finding::nothing) << uncleared;
    EXPECT_EQ(after(60.1, uncleared, placed), Finding::most) << uncleared;
    EXPECT_EQ(after(599, uncleared, placed), Finding::most) << uncleared;
    EXPECT_EQ(after(600, uncleared, placed), Finding::overdue) << uncleared;
  }
}

TEST_F(OldRanks, AttemptsBeforeThisOneHaveSpentOfTheTime) {
  EXPECT_EQ(after(99, 2, 2, 500), Finding::most);
  EXPECT_EQ(after(100, 2, 2, 500), Finding::overdue);
  EXPECT_EQ(after(60, 2, 2, 1000), Finding::nothing) << "each has the time of a node";
  EXPECT_EQ(after(61, 2, 2, 1000), Finding::overdue);
}

TEST_F(OldRanks, TheLastOnesGetTheTimeOfANodeWhenTheOthersHaveEnded) {
  EXPECT_EQ(after(200, 3, 4), Finding::most);
  EXPECT_EQ(after(200.1, 1, 4), Finding::nothing);
  EXPECT_EQ(after(260, 1, 4), Finding::nothing);
  EXPECT_EQ(after(260.1, 1, 4), Finding::node);
}

TEST_F(OldRanks, TimeInWhichNothingWasDecidedCountsForNobody) {
  after(200, 3, 4);
  clear.extend_deadlines(50, told_at + 300);
  EXPECT_EQ(after(300, 1, 4), Finding::nothing);
  EXPECT_EQ(after(310.1, 1, 4), Finding::node);
}

TEST_F(OldRanks, WhatAnAgentSaidIsOfOneAttempt) {
  clear.left(1, {3, "a process waits in the kernel"});
  EXPECT_EQ(clear.why(1, 3), ": a process waits in the kernel");
  EXPECT_EQ(clear.why(1, 4), "");
  EXPECT_EQ(clear.why(2, 3), "");
}

}  // namespace
}  // namespace holdfast::launcher
