#include "launcher/supervise/node_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double began = 1000;  // of the limits: a heartbeat every 0.2 s, lost after 2 s, started within 60 s

class NodesWatched : public testing::Test {
 protected:
  void hear(std::initializer_list<int> which, double at) {
    for (const int n : which) nodes.heartbeat(n, at);
  }
  std::vector<int> silent(double at) const {
    std::vector<int> out;
    for (const auto& node : nodes.silent_nodes(witness(), at)) out.push_back(node.node);
    return out;
  }
  NodeWatch::Witness witness() const {
    return {.lost = lost,
            .placement = placement,
            .ranks = ranks,
            .kernels_count = kernels_count,
            .took_over = took_over};
  }

  std::set<std::string> lost;
  std::vector<int> placement = {0, 1};
  double ranks = LifeSigns::never;
  bool kernels_count = true, took_over = false;
  NodeWatch nodes{{"n0", "n1", "n2", "n3"}, {}, began};
};

TEST_F(NodesWatched, ANodeIsFreshForThreeHeartbeats) {
  EXPECT_FALSE(nodes.heard(1));
  nodes.heartbeat(1, began);
  EXPECT_TRUE(nodes.hears(1, began + 0.5));
  EXPECT_FALSE(nodes.hears(1, began + 0.7));
  EXPECT_TRUE(nodes.heard(1));
  nodes.disconnected(1);
  EXPECT_FALSE(nodes.hears(1, began));
  EXPECT_THAT(nodes.heard_now(began), ElementsAre(false, false, false, false));
}

TEST_F(NodesWatched, HalfOfThoseThatAreNotLostIsAMajority) {
  hear({0, 1}, began);
  EXPECT_TRUE(nodes.majority(lost, began + 1));
  EXPECT_FALSE(nodes.majority(lost, began + 1.1)) << "half of the silence";
  hear({0}, began + 2);
  EXPECT_FALSE(nodes.majority(lost, began + 2));
  lost = {"n2", "n3"};
  EXPECT_TRUE(nodes.majority(lost, began + 2));
}

TEST_F(NodesWatched, TheTimeWithoutAMajorityIsCounted) {
  hear({0, 1}, began);
  EXPECT_TRUE(nodes.count_majority(lost, began + 1));
  EXPECT_EQ(nodes.minority_s(began + 1), 0);
  EXPECT_FALSE(nodes.count_majority(lost, began + 2));
  EXPECT_FALSE(nodes.count_majority(lost, began + 5));
  EXPECT_EQ(nodes.minority_s(began + 5), 3);
  nodes.extend_deadlines(1, began + 6);
  EXPECT_EQ(nodes.minority_s(began + 6), 3) << "nothing was decided meanwhile";
  hear({0, 1}, began + 6);
  EXPECT_TRUE(nodes.count_majority(lost, began + 6));
  EXPECT_EQ(nodes.minority_s(began + 6), 0);
}

TEST_F(NodesWatched, SilentOnesAreNamedWithWhatWasHeardLast) {
  hear({0, 1, 2, 3}, began);
  hear({0, 2, 3}, began + 2);
  EXPECT_THAT(silent(began + 2), IsEmpty());
  EXPECT_THAT(silent(began + 2.1), ElementsAre(1));
  const auto named = nodes.silent_nodes(witness(), began + 2.1).front();
  EXPECT_NEAR(named.silent_s, 2.1, 1e-9);
  EXPECT_EQ(named.evidence, "no heartbeat of n1 for 2.1 s");
  lost = {"n1"};
  EXPECT_THAT(silent(began + 2.1), IsEmpty());
}

TEST_F(NodesWatched, RanksShowThatTheirNodeLivesAndKernelsDoWhileNoRankFails) {
  hear({0, 1, 2, 3}, began);
  hear({0, 3}, began + 3);
  ranks = began + 2.5;
  EXPECT_THAT(silent(began + 3), ElementsAre(2)) << "n2 has no ranks";
  nodes.kernel_answered(2, began + 2.9);
  EXPECT_THAT(silent(began + 3), IsEmpty());
  kernels_count = false;
  EXPECT_THAT(silent(began + 3), ElementsAre(2));
}

TEST_F(NodesWatched, AnAgentThatNeverCameHasTheTimeOfAStartOrOfATakeover) {
  hear({0, 1, 2}, began + 59);
  nodes.unreached(3, "connection refused");
  EXPECT_THAT(silent(began + 60), IsEmpty());
  hear({0, 1, 2}, began + 60);
  EXPECT_THAT(silent(began + 61), ElementsAre(3));
  EXPECT_THAT(nodes.silent_nodes(witness(), began + 61).front().evidence, HasSubstr("connection refused"));
  took_over = true;
  EXPECT_THAT(silent(began + 61), ElementsAre(3));
}

TEST_F(NodesWatched, SilenceBeganInTheTermBeforeAndTheAgentHasTwoHeartbeatsToAnswer) {
  took_over = true;
  hear({0, 1, 2}, began + 0.4);
  nodes.heard_before(3, began - 1.9);
  EXPECT_THAT(silent(began + 0.4), IsEmpty());
  EXPECT_THAT(silent(began + 0.41), ElementsAre(3));
  EXPECT_NEAR(nodes.waited_s(3, began + 1), 2.9, 1e-9);
}

TEST_F(NodesWatched, AfterASuspensionNobodyIsSilentAndNobodyWasHeard) {
  hear({0, 1, 2, 3}, began);
  nodes.suspended(30, began + 30);
  EXPECT_THAT(silent(began + 30), IsEmpty());
  EXPECT_FALSE(nodes.majority(lost, began + 30));
  hear({0, 1, 2, 3}, began + 31);
  EXPECT_TRUE(nodes.majority(lost, began + 31));
}

TEST_F(NodesWatched, ALostNodeIsForgotten) {
  nodes.heartbeat(1, began);
  nodes.cleared(1, 3);
  nodes.cleared(1, 2);
  EXPECT_TRUE(nodes.has_cleared(1, 3));
  EXPECT_EQ(nodes.age_s(1, began + 1), 1);
  nodes.forget(1);
  EXPECT_FALSE(nodes.heard(1));
  EXPECT_FALSE(nodes.has_cleared(1, 1));
  EXPECT_EQ(nodes.age_s(1, began + 1), std::nullopt);
}

TEST_F(NodesWatched, WhoWasHeardSinceAFailureHadNotDiedBeforeIt) {
  hear({0, 1}, began + 1);
  EXPECT_TRUE(nodes.all_heard_since({0, 1}, began + 0.9));
  EXPECT_FALSE(nodes.all_heard_since({0, 1}, began + 0.99)) << "the last message of a node may still arrive";
  EXPECT_FALSE(nodes.all_heard_since({0, 2}, began + 0.9));
  nodes.disconnected(0);
  EXPECT_FALSE(nodes.all_heard_since({0}, began + 0.9));
}

}  // namespace
}  // namespace holdfast::launcher
