// What an agent tells the leader of the votes of its ranks, and when.
#include "launcher/agent/ranks/vote_merger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using control::NodeVotes;
using control::RankVote;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int> ranks_of(const std::vector<NodeVotes>& messages) {
  std::vector<int> out;
  for (const auto& message : messages)
    for (const auto& vote : message.votes) out.push_back(vote.rank);
  return out;
}

TEST(VoteMerger, OneMessageWhenAllRanksOfTheNodeHaveVoted) {
  VoteMerger votes;
  EXPECT_FALSE(votes.take({9, 2, 20, true, "nine"}, 3));
  EXPECT_FALSE(votes.take({10, 2, 20, true, "ten"}, 3));
  EXPECT_FALSE(votes.take({10, 2, 20, true, "ten"}, 3)) << "it repeats itself";
  EXPECT_TRUE(votes.take({8, 2, 20, true, "eight", 1500}, 3));
  const auto told = votes.untold(2, 20);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].attempt, 2);
  EXPECT_EQ(told[0].step, 20);
  EXPECT_THAT(ranks_of(told), ElementsAre(8, 9, 10));
  EXPECT_THAT(told[0].each_payload(), ElementsAre("eight", "nine", "ten"));
  EXPECT_EQ(told[0].votes[0].stall_us, 1500);
  EXPECT_EQ(told[0].votes[1].stall_us, 0);
  EXPECT_THAT(votes.untold(2, 20), IsEmpty());
}

TEST(VoteMerger, WhoWaitsTooLongIsToldAndTheRestLater) {
  VoteMerger votes;
  votes.take({8, 2, 20, true, ""}, 3);
  EXPECT_THAT(ranks_of(votes.untold(2, 20)), ElementsAre(8)) << "the patience of the agent is over";
  EXPECT_FALSE(votes.take({9, 2, 20, true, ""}, 3));
  EXPECT_TRUE(votes.take({10, 2, 20, true, ""}, 3));
  EXPECT_THAT(ranks_of(votes.untold(2, 20)), ElementsAre(9, 10));
}

TEST(VoteMerger, ANoIsToldAtOnce) {
  VoteMerger votes;
  EXPECT_FALSE(votes.take({8, 2, 20, true, ""}, 3));
  EXPECT_TRUE(votes.take({9, 2, 20, false, "no space"}, 3));
  const auto told = votes.untold(2, 20);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].votes[0].ok);
  EXPECT_FALSE(told[0].votes[1].ok);
  EXPECT_EQ(told[0].each_payload()[1], "no space");
}

TEST(VoteMerger, NobodyWaitsForARankThatHasEnded) {
  VoteMerger votes;
  EXPECT_FALSE(votes.take({8, 2, 20, true, ""}, 3));
  EXPECT_TRUE(votes.take({9, 2, 20, true, ""}, 2));
}

TEST(VoteMerger, ANewLeaderHearsAllThatHasNoOutcome) {
  VoteMerger votes;
  for (const std::int64_t step : {20, 30, 40})
    for (const int rank : {8, 9}) votes.take({rank, 2, step, true, "x"}, 2);
  votes.untold(2, 20), votes.untold(2, 30);
  votes.take({8, 2, 50, true, "x"}, 2);
  votes.settled(2, 20);
  const auto all = votes.all();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].step, 30);
  EXPECT_EQ(all[1].step, 40);
  EXPECT_EQ(all[2].step, 50);
  EXPECT_THAT(ranks_of(all), ElementsAre(8, 9, 8, 9, 8));
  EXPECT_THAT(votes.untold(2, 40), IsEmpty()) << "this leader has them now";
  EXPECT_EQ(votes.all().size(), 3u) << "the next one has not";
  EXPECT_TRUE(votes.take({9, 2, 50, true, "x"}, 2));
  EXPECT_THAT(ranks_of(votes.untold(2, 50)), ElementsAre(9));
}

/// The outcome came while the rank was not connected: it asks again.
TEST(VoteMerger, AVoteAfterItsOutcomeIsToldAgain) {
  VoteMerger votes;
  votes.take({8, 2, 20, true, "x"}, 2), votes.take({9, 2, 20, true, "x"}, 2);
  votes.untold(2, 20);
  votes.settled(2, 20);
  votes.take({9, 2, 20, true, "x"}, 2);
  EXPECT_THAT(ranks_of(votes.untold(2, 20)), ElementsAre(9));
}

TEST(VoteMerger, OlderAttemptsAreForgotten) {
  VoteMerger votes;
  votes.take({8, 1, 20, true, ""}, 1), votes.take({8, 2, 20, true, ""}, 1);
  votes.forget_older(2);
  EXPECT_THAT(votes.untold(1, 20), IsEmpty());
  EXPECT_THAT(ranks_of(votes.untold(2, 20)), ElementsAre(8));
}

TEST(VoteMerger, LongPayloadsTravelInSeveralMessages) {
  VoteMerger votes;
  const std::string third(NodeVotes::max_bytes / 3, 'x');
  for (int rank = 0; rank < 7; ++rank) votes.take({rank, 2, 20, true, third}, 8);
  votes.take({7, 2, 20, true, std::string(NodeVotes::max_bytes, 'x')}, 8);
  const auto told = votes.untold(2, 20);
  std::vector<std::size_t> sizes;
  for (const auto& message : told) sizes.push_back(message.votes.size());
  EXPECT_THAT(sizes, ElementsAre(3, 3, 1, 1));
  EXPECT_THAT(ranks_of(told), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace
}  // namespace holdfast::launcher
