// The messages that an agent accepts: the rows of leadership_state.hpp and election_count.hpp, one by one.
#include "launcher/agent/leader/leadership_state.hpp"

#include <gtest/gtest.h>

#include "launcher/agent/leader/election_count.hpp"

namespace holdfast::launcher {
namespace {

using After = LeadershipState::After;

using control::Answer;
using Fence = LeadershipState::Fence;
using Outcome = ElectionCount::Outcome;

LeadershipState agent(int place, int term, double now = 0) { return {place, {2, 0.5, 8}, term, 0, now}; }

TEST(LeadershipState, TheFirstElectionIsTheBatchHosts) {
  EXPECT_TRUE(agent(0, 0).should_start_election(0));
  EXPECT_FALSE(agent(1, 0).should_start_election(8.4));
  EXPECT_TRUE(agent(1, 0).should_start_election(8.5));
  EXPECT_TRUE(agent(3, 0).should_start_election(9.5));
  EXPECT_FALSE(agent(-1, 0).should_start_election(1000)) << "no candidate";
}

TEST(LeadershipState, LaterOnesGoInTurn) {
  EXPECT_FALSE(agent(0, 1).should_start_election(1.9));
  EXPECT_TRUE(agent(0, 1).should_start_election(2));
  EXPECT_FALSE(agent(2, 1).should_start_election(2.9));
  EXPECT_TRUE(agent(2, 1).should_start_election(3));
}

TEST(LeadershipState, FollowsTheHighestTerm) {
  LeadershipState a = agent(0, 3);
  EXPECT_FALSE(a.accept_leader(2, 1));
  EXPECT_TRUE(a.should_start_election(2)) << "an old leader's call is no sign of life";
  EXPECT_TRUE(a.accept_leader(3, 2));
  EXPECT_FALSE(a.should_start_election(3.9));
  EXPECT_TRUE(a.accept_leader(7, 3));
  EXPECT_EQ(a.term(), 7);
  EXPECT_FALSE(a.accept_leader(6, 3));
  a.leader_spoke(10);
  EXPECT_FALSE(a.should_start_election(11.9));
  a.leader_lost();
  EXPECT_FALSE(a.should_start_election(11.9)) << "the line may come back: silence decides";
  EXPECT_TRUE(a.should_start_election(12));
}

TEST(LeadershipState, RemembersTheLastWordOfAnotherLeader) {
  LeadershipState a = agent(0, 3);
  EXPECT_LT(a.last_heard().at, 0) << "none was heard";
  a.accept_leader(4, 1);
  a.leader_spoke(2.5);
  EXPECT_EQ(a.last_heard().term, 4);
  EXPECT_EQ(a.last_heard().at, 2.5);
  a.begin_election(4, 4);
  a.election_over(true, 5, 5);
  a.accept_leader(5, 5.1);  // its own
  a.leader_spoke(5.2);
  EXPECT_EQ(a.last_heard().term, 4);
  EXPECT_EQ(a.last_heard().at, 2.5);
}

TEST(LeadershipState, AnswersCandidates) {
  LeadershipState a = agent(-1, 3);
  EXPECT_TRUE(a.answer(4, 0.5).grant) << "it follows nobody";
  EXPECT_FALSE(a.answer(3, 0.5).grant) << "that term is taken";
  a.accept_leader(3, 1);
  const Answer denied = a.answer(4, 2.5);
  EXPECT_FALSE(denied.grant);
  EXPECT_EQ(denied.term, 3);
  EXPECT_EQ(denied.leader_age_ms, 1500);
  EXPECT_TRUE(a.answer(4, 3).grant) << "silent for 2 s, though the line is open";
  a.leader_spoke(3);
  a.leader_lost();
  EXPECT_TRUE(a.answer(4, 3.1).grant);
}

TEST(LeadershipState, AnElection) {
  LeadershipState a = agent(0, 3);
  EXPECT_EQ(a.begin_election(5, 5), 6) << "terms 4 and 5 were taken by others";
  EXPECT_FALSE(a.should_start_election(100)) << "one at a time";
  EXPECT_TRUE(a.answer(6, 4).grant) << "a candidate may answer another, or itself";
  EXPECT_EQ(a.election_over(true, 6, 4), After::leads);
  EXPECT_TRUE(a.leads());
  EXPECT_FALSE(a.should_start_election(100));
  EXPECT_FALSE(a.answer(7, 100).grant) << "a leader hears itself";
  EXPECT_TRUE(a.answer(8, 100).grant) << "term 7 was taken, and we have not heard of it";
  EXPECT_TRUE(a.accept_leader(6, 5)) << "its own call";
  EXPECT_TRUE(a.leads());
  EXPECT_TRUE(a.accept_leader(7, 6));
  EXPECT_FALSE(a.leads()) << "a higher one is there";
}

TEST(LeadershipState, ALostElection) {
  LeadershipState a = agent(0, 3);
  EXPECT_EQ(a.begin_election(3, 3), 4);
  EXPECT_EQ(a.election_over(false, 4, 5), After::follows);
  EXPECT_EQ(a.term(), 4);
  EXPECT_FALSE(a.should_start_election(6.9)) << "somebody won: he gets the time to say so";
  EXPECT_TRUE(a.should_start_election(7));
  EXPECT_EQ(a.begin_election(4, 4), 5);
  EXPECT_EQ(a.election_over(false, 4, 8), After::follows);
  EXPECT_TRUE(a.should_start_election(8)) << "nobody won";
}

TEST(LeadershipState, AWinThatCameTooLate) {
  LeadershipState a = agent(0, 3);
  EXPECT_EQ(a.begin_election(3, 3), 4);
  EXPECT_TRUE(a.accept_leader(5, 4));
  EXPECT_EQ(a.election_over(true, 4, 4), After::renounces);
  EXPECT_FALSE(a.leads());
  EXPECT_EQ(a.term(), 5);
}

TEST(LeadershipState, ATermThatStorageGaveTooLateDeposesNobody) {
  LeadershipState a = agent(0, 3);
  EXPECT_EQ(a.begin_election(3, 5), 6) << "a term that was renounced is not taken again";
  EXPECT_TRUE(a.accept_leader(4, 100)) << "others have elected one meanwhile";
  a.leader_spoke(599);
  EXPECT_EQ(a.election_over(true, 6, 600), After::renounces);
  EXPECT_EQ(a.term(), 4);
  EXPECT_TRUE(a.accept_leader(4, 601));
  // One that speaks no more does not keep this node from leading.
  EXPECT_EQ(a.begin_election(4, 6), 7);
  EXPECT_EQ(a.election_over(true, 7, 604), After::leads);
}

TEST(LeadershipState, ResigningStartsTheSilenceAnew) {
  LeadershipState a = agent(0, 0);
  a.begin_election(0, 0);
  ASSERT_EQ(a.election_over(true, 1, 0), After::leads);
  a.resigned(50);
  EXPECT_FALSE(a.leads());
  EXPECT_FALSE(a.should_start_election(51));
  EXPECT_TRUE(a.should_start_election(52));
}

TEST(LeadershipState, FencesByNumber) {
  LeadershipState a(0, {}, 3, 4, 0);
  EXPECT_EQ(a.admit(3), Fence::refuse);
  EXPECT_EQ(a.admit(4), Fence::same);
  EXPECT_EQ(a.admit(6), Fence::newer);
  EXPECT_EQ(a.attempt(), 6);
  EXPECT_EQ(a.admit(5), Fence::refuse);
  EXPECT_EQ(a.admit(6), Fence::same);
}

ElectionCount count(int nodes, std::vector<int> grants, std::vector<int> denials = {},
                    std::vector<int> lost = {}) {
  std::vector<bool> out(nodes);
  for (const int n : lost) out[n] = true;
  ElectionCount answers(std::move(out));
  for (const int n : grants) answers.answered(n, Answer{true, 3, 2000});
  for (const int n : denials) answers.answered(n, Answer{false, 3, 10});
  return answers;
}

TEST(ElectionCount, HalfIsEnough) {
  EXPECT_EQ(count(4, {0}).outcome(false), Outcome::open);
  EXPECT_EQ(count(4, {0}).outcome(true), Outcome::lost);
  EXPECT_EQ(count(4, {0, 0}).outcome(false), Outcome::open) << "once each";
  EXPECT_EQ(count(4, {0, 3}).outcome(false), Outcome::won);
  EXPECT_EQ(count(5, {0, 3}).outcome(true), Outcome::lost);
  EXPECT_EQ(count(5, {0, 3, 4}).outcome(false), Outcome::won);
  EXPECT_EQ(count(1, {0}).outcome(false), Outcome::won);
}

TEST(ElectionCount, WhoHearsALeaderObjects) {
  EXPECT_EQ(count(5, {0, 1, 2, 3}, {4}).outcome(false), Outcome::lost);
  EXPECT_EQ(count(5, {0, 1, 2}, {4}, {4}).outcome(false), Outcome::won) << "a lost node has no vote";
}

TEST(ElectionCount, TheLostDoNotCount) {
  EXPECT_EQ(count(5, {0, 1}, {}, {3, 4}).outcome(false), Outcome::won);
  EXPECT_EQ(count(5, {3, 4}, {}, {3, 4}).outcome(true), Outcome::lost);
}

TEST(ElectionCount, OfTwoSlurmDecides) {
  EXPECT_EQ(count(2, {1}).outcome(false), Outcome::open) << "the other may yet answer";
  EXPECT_EQ(count(2, {1}).outcome(true), Outcome::ask_slurm);
  EXPECT_EQ(count(2, {0, 1}).outcome(false), Outcome::won);
  EXPECT_EQ(count(4, {1}, {}, {2, 3}).outcome(true), Outcome::ask_slurm);
  EXPECT_EQ(count(2, {1}, {0}).outcome(true), Outcome::lost);
}

}  // namespace
}  // namespace holdfast::launcher
