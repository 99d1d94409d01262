#include "launcher/supervise/life_signs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using testing::HasSubstr;

/// When each sign was seen last, in seconds before now.
struct Ages {
  double agent, ranks = -LifeSigns::never, kernel = -LifeSigns::never;
};
constexpr double any_moment = 1000;
LifeSigns signs_before(const Ages& ages) {
  return {any_moment - ages.agent, any_moment - ages.ranks, any_moment - ages.kernel};
}
bool lost_with(const Ages& ages, double patience_s = 2) {
  return is_lost(signs_before(ages), any_moment, patience_s);
}

TEST(LifeSigns, AnAgentThatWasHeardIsEnough) {
  EXPECT_FALSE(lost_with({2}));
  EXPECT_TRUE(lost_with({2.1})) << "nothing else shows that the node lives";
}

TEST(LifeSigns, RanksShowThatANodeLivesUntilItHasBeenUnattendedForTooLong) {
  EXPECT_FALSE(lost_with({.agent = 20, .ranks = 2}));
  EXPECT_TRUE(lost_with({.agent = 20, .ranks = 2.1}));
  EXPECT_FALSE(lost_with({.agent = unattended_node_s, .ranks = 0}));
  EXPECT_TRUE(lost_with({.agent = unattended_node_s + 0.1, .ranks = 0}));
}

TEST(LifeSigns, AKernelShowsThatANodeLivesUntilItsAgentShouldHaveBeenReplaced) {
  EXPECT_FALSE(lost_with({.agent = stuck_node_s, .kernel = 2}));
  EXPECT_TRUE(lost_with({.agent = stuck_node_s, .kernel = 2.1}));
  EXPECT_TRUE(lost_with({.agent = stuck_node_s + 0.1, .kernel = 0}));
  EXPECT_FALSE(lost_with({.agent = 20, .ranks = stuck_node_s, .kernel = 0})) << "its ranks were seen since";
}

TEST(LifeSigns, AStepLongerThanTheSilenceProvesNothing) {
  EXPECT_TRUE(lost_with({.agent = 2.1, .ranks = 2.1})) << "the newest step that is over began before that";
  EXPECT_FALSE(lost_with({.agent = 2.1, .ranks = 2.1, .kernel = 0.5}));
}

TEST(LifeSigns, LongPatienceIsNotShortened) {
  EXPECT_FALSE(lost_with({59}, 60)) << "an agent that may be slow to start";
  EXPECT_FALSE(lost_with({299}, 300));
}

TEST(LifeSigns, TheEvidenceNamesWhatWasSeenAfterTheAgent) {
  const auto text = says_of(signs_before({9, 8.5, 0.25}), any_moment);
  EXPECT_THAT(text, HasSubstr("its ranks took part in a step 8.5 s ago"));
  EXPECT_THAT(text, HasSubstr("its kernel has answered 0.2 s ago"));
  EXPECT_EQ(says_of(signs_before({.agent = 2, .ranks = 3}), any_moment), "");
}

}  // namespace
}  // namespace holdfast::launcher
