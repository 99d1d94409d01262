#include "launcher/supervise/attempt_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using control::Phase;

/// Two ranks on each of two nodes: 0 and 1 on node 4, 2 and 3 on node 7.
class RanksWatched : public testing::Test {
 protected:
  std::vector<RankMove> beat(int node, std::vector<control::RankProgress> ranks, double at) {
    for (auto& rank : ranks) rank.attempt = 1;
    return attempt.heartbeat(node, {"", 1, std::move(ranks)}, at);
  }
  void all_at(std::int64_t step, Phase phase, double at) {
    beat(4, {{0, 1, step, phase}, {1, 1, step, phase}}, at);
    beat(7, {{2, 1, step, phase}, {3, 1, step, phase}}, at);
  }
  AttemptWatch attempt{2, {}, 0.2, {4, 7}};
};

TEST_F(RanksWatched, RanksBelongToSlots) {
  EXPECT_EQ(attempt.world(), 4);
  EXPECT_EQ(attempt.node_of(3), 7);
  EXPECT_EQ(attempt.slot_of(7), 1);
  EXPECT_EQ(attempt.slot_of(0), -1);
  EXPECT_TRUE(attempt.has_on(1, 4));
  EXPECT_FALSE(attempt.has_on(1, 7));
  EXPECT_FALSE(attempt.has_on(4, 7));
}

TEST_F(RanksWatched, StartsAreCountedAndTheFirstMissingOneIsNamed) {
  attempt.started(0);
  attempt.started(1);
  auto missing = attempt.missing();
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->count, 2);
  EXPECT_EQ(missing->first, 2);
  EXPECT_TRUE(missing->one_node);
  attempt.begin({4, 7});
  attempt.started(1), attempt.started(2);
  EXPECT_FALSE(attempt.missing()->one_node);
  beat(4, {{0, 1}}, 1);
  attempt.started(3);
  EXPECT_FALSE(attempt.missing()) << "a heartbeat shows it, too";
  EXPECT_TRUE(attempt.whole());
}

TEST_F(RanksWatched, MovesTellHowLongAPhaseAndAStepTook) {
  EXPECT_FALSE(beat(4, {{0, 1, 5, Phase::data}}, 10).front().left_s) << "nothing is known before";
  const auto moves = beat(4, {{0, 1, 6, Phase::forward, 2000}}, 13);
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves.front().left, Phase::data);
  EXPECT_EQ(moves.front().left_s, 3);
  EXPECT_EQ(moves.front().step_s, 3);
  EXPECT_DOUBLE_EQ(moves.front().compute_s, 2e-3);
  EXPECT_FALSE(beat(4, {{0, 1, 6, Phase::forward}}, 14).front().left_s);
  EXPECT_EQ(beat(4, {{0, 1, 6, Phase::forward, 0, 1}}, 15).front().left_s, 2) << "it began the phase again";
  EXPECT_TRUE(beat(7, {{0, 1, 9, Phase::data}}, 16).empty()) << "not its node";
  EXPECT_EQ(attempt.step_of(0), 6);
}

TEST_F(RanksWatched, AnAgentThatWasReplacedTakesNothingBack) {
  beat(4, {{0, 1, 5, Phase::data}}, 10);
  EXPECT_TRUE(beat(4, {{0, 1, -1, Phase::starting}}, 11).empty());
  EXPECT_EQ(attempt.step_of(0), 5);
}

TEST_F(RanksWatched, AStepShowsThatAllRanksLivedWhenItBegan) {
  EXPECT_EQ(attempt.all_took_part_at(), LifeSigns::never);
  all_at(5, Phase::data, 10);
  EXPECT_EQ(attempt.all_took_part_at(), LifeSigns::never);
  beat(4, {{0, 1, 6, Phase::data}}, 13);
  EXPECT_DOUBLE_EQ(attempt.all_took_part_at(), 9.8) << "the heartbeat of step 5, which may be old";
  AttemptWatch other(2, {.steps_together = false}, 0.2, {4, 7});
  other.heartbeat(4, {"", 1, {{0, 1, 5, Phase::data}}}, 10);
  other.heartbeat(4, {"", 1, {{0, 1, 6, Phase::data}}}, 13);
  EXPECT_EQ(other.all_took_part_at(), LifeSigns::never) << "its ranks may not wait for each other";
}

TEST_F(RanksWatched, EndsAreCounted) {
  for (const int rank : {0, 1, 2}) attempt.ended(rank, true);
  EXPECT_EQ(attempt.unended(), 1);
  EXPECT_FALSE(attempt.all_exited_well());
  attempt.ended(3, false);
  EXPECT_EQ(attempt.unended(), 0);
  EXPECT_FALSE(attempt.all_exited_well());
  attempt.ended(3, true);
  EXPECT_TRUE(attempt.all_exited_well());
  EXPECT_TRUE(attempt.finished(0));
  EXPECT_FALSE(attempt.finished(0));
}

TEST_F(RanksWatched, ARankThatItsAgentDoesNotNameHasVanished) {
  all_at(5, Phase::data, 10);
  beat(4, {{0, 1, 5, Phase::data}}, 26);
  std::vector<bool> heard_now(8, true);
  ASSERT_TRUE(attempt.vanished(heard_now, 26));
  EXPECT_EQ(attempt.vanished(heard_now, 26)->rank, 1);
  EXPECT_EQ(attempt.vanished(heard_now, 26)->status, -1);
  heard_now[4] = false;
  EXPECT_EQ(attempt.vanished(heard_now, 26)->rank, 2) << "what a silent agent would say is not known";
  attempt.extend_deadlines(10, 26);
  EXPECT_FALSE(attempt.vanished(heard_now, 26));
}

TEST_F(RanksWatched, ASaveShowsTheStepOfAllRanks) {
  all_at(5, Phase::data, 10);
  attempt.saved(7);
  EXPECT_EQ(attempt.highest_step(), 7);
  EXPECT_EQ(attempt.step_of(3), 7);
}

TEST_F(RanksWatched, RanksThatTrainAreStillSinceTheyMoved) {
  all_at(5, Phase::data, 10);
  attempt.finished(0);
  attempt.ended(1, true);
  attempt.flight({2, 1, 50, {}}, 12);
  const auto still = attempt.still_ranks(true, 13);
  ASSERT_EQ(still.size(), 2u);
  EXPECT_EQ(still[0].rank, 2);
  EXPECT_EQ(still[0].still_s, 3);
  EXPECT_TRUE(still[0].flight);
  EXPECT_FALSE(attempt.still_ranks(true, 16)[0].flight) << "the report is about an earlier delay";
  attempt.hold(20);
  EXPECT_EQ(attempt.still_ranks(true, 20)[0].still_s, 0);
}

TEST_F(RanksWatched, ARankThatWasNeverHeardIsAmongThemOnceTheStateIsRestored) {
  attempt.started(3);
  attempt.watch(9);
  beat(4, {{0, 1, 6, Phase::data}, {1, 1, 5, Phase::data}}, 10);
  EXPECT_EQ(attempt.still_ranks(false, 12).size(), 2u);
  const auto still = attempt.still_ranks(true, 12);
  ASSERT_EQ(still.size(), 3u);
  EXPECT_EQ(still[2].rank, 3);
  EXPECT_EQ(still[2].step, 5) << "where the last of the others is";
  EXPECT_TRUE(still[2].unheard);
}

TEST_F(RanksWatched, AProgramFollowsWhenAllOfItsRanksReport) {
  AttemptWatch other(2, {.reports = config::Reports::never}, 0.2, {4, 7});
  EXPECT_FALSE(other.reports());
  other.heartbeat(4, {"", 1, {{0, 1, 1, Phase::data}, {1, 1, 1, Phase::data}}}, 1);
  EXPECT_TRUE(other.reports());
  EXPECT_FALSE(other.follows());
  other.heartbeat(7, {"", 1, {{2, 1, 1, Phase::data}, {3, 1, 1, Phase::data}}}, 1);
  EXPECT_TRUE(other.follows());
  EXPECT_TRUE(attempt.follows()) << "our trainer does";
}

}  // namespace
}  // namespace holdfast::launcher
