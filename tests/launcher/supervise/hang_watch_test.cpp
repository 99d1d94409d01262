#include "launcher/supervise/hang_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using control::Phase;
using testing::ElementsAre;

constexpr double first_bound_s = 20;  // the bound while no pace is known
config::Supervise limits_with_step() {
  config::Supervise limits;
  limits.step_s = static_cast<int>(first_bound_s);
  return limits;
}
/// Rank 1 holds up the other one, both for `still_s`.
std::vector<StillRank> held_up(double still_s) {
  return {{0, 9, Phase::collective, still_s}, {1, 9, Phase::data, still_s}};
}

class Hangs : public testing::Test {
 protected:
  HangWatch watch{limits_with_step(), 2, {}};
};

TEST_F(Hangs, TheCulpritsStacksAreAskedForOnceAndWaitedFor) {
  EXPECT_EQ(watch.check(held_up(first_bound_s), true, 100).dump, -1);
  const auto first = watch.check(held_up(first_bound_s + 0.1), true, 100);
  EXPECT_EQ(first.dump, 1);
  EXPECT_FALSE(first.hang);
  EXPECT_EQ(watch.since(), 100);
  EXPECT_EQ(watch.check(held_up(first_bound_s + 1), true, 101).dump, -1);
  watch.stacks(0, "another rank's");
  EXPECT_FALSE(watch.check(held_up(first_bound_s + 1), true, 101).hang);
  watch.stacks(1, "#0 wait\n#1 gather\n");
  const auto found = watch.check(held_up(first_bound_s + 1), true, 101);
  ASSERT_TRUE(found.hang);
  const Failure failure = failure_of(*found.hang, 4, "n4");
  EXPECT_EQ(failure.kind, Failure::Kind::rank_hung);
  EXPECT_EQ(failure.node, 4);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.silent_s, first_bound_s + 1);
  EXPECT_EQ(failure.evidence, "rank 1 on n4 has shown no progress for 20 s");
  EXPECT_THAT(failure.seen, ElementsAre("#0 wait", "#1 gather"));
}

TEST_F(Hangs, StacksThatDoNotComeAreNotWaitedForLong) {
  watch.check(held_up(first_bound_s + 1), true, 100);
  EXPECT_FALSE(watch.check(held_up(first_bound_s + 2.9), true, 101.9).hang);
  EXPECT_TRUE(watch.check(held_up(first_bound_s + 3), true, 102).hang);
}

TEST_F(Hangs, NothingIsSaidOfRanksThatAreNotHeardOrMoveAgain) {
  EXPECT_EQ(watch.check(held_up(first_bound_s + 1), false, 100).dump, -1);
  watch.check(held_up(first_bound_s + 1), true, 100);
  watch.check(held_up(first_bound_s + 1), false, 101);
  EXPECT_EQ(watch.since(), 100) << "a silence ends no hang";
  watch.check(held_up(1), true, 101);
  EXPECT_FALSE(watch.since());
  watch.check(held_up(first_bound_s + 1), true, 102);
  watch.forget();
  EXPECT_FALSE(watch.since());
  watch.check(held_up(first_bound_s + 1), true, 103);
  watch.extend_deadlines(2, 104);
  EXPECT_EQ(watch.since(), 104);
}

TEST_F(Hangs, ThePaceIsLearnedFromMovesAndRecordedOnceIn10S) {
  EXPECT_FALSE(watch.pace_is_news({}, 100));
  for (int round = 0; round < Pace::first_rounds; ++round)
    for (const int rank : {0, 1})
      watch.moved({.rank = rank, .step = round, .step_s = 0.5, .left_s = 0.4, .left = Phase::forward});
  EXPECT_TRUE(watch.pace_is_news({}, 100));
  const auto known = watch.known_pace(100);
  EXPECT_EQ(known.at("step").longest, 0.5);
  EXPECT_EQ(known.at("forward").longest, 0.4);
  EXPECT_FALSE(watch.pace_is_news({}, 109));
  EXPECT_TRUE(watch.pace_is_news({}, 110));
  EXPECT_FALSE(watch.pace_is_news(known, 110));
  HangWatch next(limits_with_step(), 2, known);
  EXPECT_EQ(next.known_pace(0), known) << "the next leader knows it";
}

}  // namespace
}  // namespace holdfast::launcher
