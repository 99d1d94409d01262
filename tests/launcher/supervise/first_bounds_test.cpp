// Bounds of phases that have never been seen.
#include "launcher/supervise/first_bounds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/supervise/pace.hpp"
#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using control::Phase;
using test::FakeCluster;

/// Small enough that all rates of a CPU give round numbers.
RankWork small() {
  RankWork work;
  work.restored = 400'000'000;  // 20 s at 20 MB/s
  work.saved = 200'000'000;     // 10 s
  work.tokens = 2'000'000;      // 0.1 s
  work.operations = 5e8;        // 5 s at 10^8
  work.sent = 20'000'000;       // 1 s at 20 MB/s
  work.state = 100'000'000;     // 1 s at 100 MB/s
  work.peers = 20;              // 1 s
  work.patience_s = 120;
  return work;
}
constexpr Phase of_a_step[] = {Phase::data, Phase::forward, Phase::backward, Phase::collective,
                               Phase::optimizer};

TEST(FirstBounds, EachPhaseHasItsPlannedTime) {
  const RankWork work = small();
  for (const Phase phase : of_a_step) EXPECT_DOUBLE_EQ(planned_s(phase, work), 9.1);
  EXPECT_DOUBLE_EQ(planned_s(Phase::restoring, work), 23);
  EXPECT_DOUBLE_EQ(planned_s(Phase::checkpoint, work), 19.1);
  for (const Phase phase : {Phase::starting, Phase::finishing, Phase::paused})
    EXPECT_EQ(planned_s(phase, work), -1);
}

TEST(FirstBounds, TheBoundIsAFactorAFloorAndACap) {
  config::Supervise limits;
  RankWork work = small();
  EXPECT_DOUBLE_EQ(first_bound_s(Phase::forward, work, limits), 2 * 3 * 9.1);
  EXPECT_DOUBLE_EQ(first_bound_s(Phase::restoring, work, limits), 2 * 3 * 23 + 120);
  limits.hang_factor = 10;
  EXPECT_DOUBLE_EQ(first_bound_s(Phase::forward, work, limits), 182);
  limits.step_s = 50;
  for (int i = 0; i <= static_cast<int>(Phase::paused); ++i)
    EXPECT_EQ(first_bound_s(static_cast<Phase>(i), work, limits), 50) << "never later";
  limits = {};
  work = {.restored = 1, .operations = 1};
  EXPECT_EQ(first_bound_s(Phase::forward, work, limits), 10) << "hang_floor_s, twice";
  EXPECT_EQ(first_bound_s(Phase::restoring, work, limits), 10);
}

TEST(FirstBounds, OfWhatNothingIsKnownTheCapIsTheBound) {
  for (int i = 0; i <= static_cast<int>(Phase::paused); ++i)
    EXPECT_EQ(first_bound_s(static_cast<Phase>(i), {}, {}), 600);
}

TEST(FirstBounds, PlannedRatesCountBeforeThoseThatStandIn) {
  RankWork work = small();
  work.read_s = 100e6;
  work.written_s = 50e6;
  EXPECT_DOUBLE_EQ(planned_s(Phase::restoring, work), 4 + 1 + 2);
  EXPECT_DOUBLE_EQ(planned_s(Phase::checkpoint, work), 4 + 9.02);
  work.gpu = true;
  EXPECT_NEAR(planned_s(Phase::forward, work), 0.02 + 21, 0.02)
      << "all but tokens and what comes once is nothing";
}

/// A phase that is seen often enough goes by what was learned, and its first bound is of no use any more.
TEST(FirstBounds, GiveWayToThePaceThatIsLearned) {
  Pace pace({}, 1, small());
  EXPECT_DOUBLE_EQ(pace.deadline_s(Phase::forward), 54.6);
  EXPECT_DOUBLE_EQ(pace.deadline_s(Phase::restoring), 258);
  for (int i = 0; i < 3; ++i) pace.left(Phase::forward, 4);
  EXPECT_EQ(pace.deadline_s(Phase::forward), 12);
  EXPECT_DOUBLE_EQ(pace.deadline_s(Phase::data), 54.6) << "never seen";
  pace.left(Phase::forward, 40);
  EXPECT_EQ(pace.deadline_s(Phase::forward), 120) << "slow, and healthy";
  for (int i = 0; i < 3; ++i) pace.stepped(5);
  EXPECT_EQ(pace.deadline_s(Phase::data), 15) << "no longer than whole steps";
  EXPECT_DOUBLE_EQ(pace.deadline_s(Phase::checkpoint), 2 * 3 * 19.1) << "it is no part of every step";
}

TEST(FirstBounds, AHangInTheFirstStepIsFoundByThem) {
  const auto found_after = [](const RankWork& work) {
    FakeCluster c;
    c.roster.work = work;
    c.new_leader(3);
    EXPECT_TRUE(c.until(Stage::running));
    c.rank(3).hangs = true;
    const double since = c.now;
    EXPECT_TRUE(c.until([&] { return c.leader->attempt() == 2; }, 700));
    EXPECT_EQ(c.last("attempt_ended")["cause"], "rank hung");
    return c.now - since;
  };
  EXPECT_NEAR(found_after(small()), 54.6, 2);
  EXPECT_NEAR(found_after({}), 600, 2);
}

}  // namespace
}  // namespace holdfast::launcher
