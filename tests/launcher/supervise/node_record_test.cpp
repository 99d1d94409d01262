#include "launcher/supervise/node_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/supervise/policy.hpp"
#include "launcher/supervise/spare_choice.hpp"
#include "tests/launcher/fake_cluster.hpp"
#include "tests/launcher/record/log_entry.hpp"

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using What = NodeMark::What;

TEST(NodePastTest, AFailureCountsForThreeWeeks) {
  NodePast past;
  EXPECT_TRUE(past.score(0).clean());
  past.add({What::lost, 1000, 1, 1});
  EXPECT_EQ(past.score(1000).failures, 1);
  EXPECT_EQ(past.score(1000 + 20 * 86400).failures, 1);
  EXPECT_EQ(past.in_words(1000 + 20 * 86400), "lost");
  EXPECT_EQ(past.score(1000 + 22 * 86400).failures, 0);
  EXPECT_EQ(past.in_words(1000 + 22 * 86400), "");
  EXPECT_EQ(past.score(0).failures, 1) << "the clock of this leader is behind";
}

TEST(NodePastTest, TwoFailuresAreOneWithTime) {
  NodePast past;
  past.add({What::lost, 0, 1, 1});
  past.add({What::ended_attempt, 0, 1, 2});
  EXPECT_EQ(past.score(0).failures, 2);
  EXPECT_EQ(past.score(4 * 86400).failures, 2);
  EXPECT_EQ(past.score(5 * 86400).failures, 1);
  EXPECT_NEAR(past.failure_weight(0), 2, 1e-9);
}

TEST(NodePastTest, OneFaultOfAnAttemptIsOneFailure) {
  NodePast past;
  past.add({What::lost, 0, 1, 3});
  past.add({What::ended_attempt, 1, 1, 3});
  past.add({What::evicted, 2, 1, 3});
  EXPECT_EQ(past.score(2).failures, 1);
  EXPECT_EQ(past.in_words(2), "lost");
  past.add({What::lost, 3, 7, 3});
  EXPECT_EQ(past.score(3).failures, 2) << "of another job";
  EXPECT_EQ(past.in_words(3), "lost 2 times");
}

TEST(NodePastTest, DoubtsAreNoFailures) {
  NodePast past;
  past.add({What::slow, 0, 1, 1});
  past.add({What::slow, 5, 1, 1});
  past.add({What::doubted, 0, 1, 1});
  EXPECT_EQ(past.score(0).failures, 0);
  EXPECT_EQ(past.score(0).doubts, 2);
  EXPECT_EQ(past.in_words(0), "slow, perhaps computed wrongly");
  EXPECT_LT(past.score(0), (NodeScore{.failures = 1})) << "however many there are";
}

TEST(NodePastTest, OnlyTheNewestCheckCounts) {
  NodePast past;
  past.checked({What::critical, 0, 1, 1});
  EXPECT_EQ(past.in_words(0), "critical");
  past.checked({What::warned, 1, 1, 2});
  EXPECT_EQ(past.in_words(1), "warned");
  EXPECT_EQ(past.score(1).failures, 0);
  past.checked_ok();
  EXPECT_TRUE(past.score(1).clean());
}

/// What events leave behind.
class Pasts : public testing::Test {
 protected:
  using json = nlohmann::json;
  void take(json event) {
    event["term"] = term;
    event["unix"] = now;
    apply(state, test::entry(event));
  }
  void job(const std::string& name) {
    ++term;
    take({{"event", "leader_elected"}, {"node", "n3"}, {"job", name}});
  }
  void planned(int attempt) {
    take({{"event", "attempt_planned"}, {"attempt", attempt}, {"placement", {"n0", "n1", "n2"}}});
  }
  std::string of(const std::string& node) {
    const auto past = state.pasts.find(node);
    return past == state.pasts.end() ? "" : past->second.in_words(now);
  }
  RunState state;
  int term = 0;
  double now = 1.7e9;
};

TEST_F(Pasts, EventsOfEveryKind) {
  job("7.0");
  planned(1);
  take({{"event", "node_lost"}, {"node", "n0"}, {"slot", 0}});
  take(
      {{"event", "attempt_ended"}, {"attempt", 1}, {"node", "n0"}, {"cause", "node lost"}, {"blamed", true}});
  take({{"event", "node_returned"}, {"node", "n0"}});
  planned(2);
  take({{"event", "attempt_ended"}, {"attempt", 2}, {"node", "n1"}, {"cause", "gpu"}, {"blamed", true}});
  take({{"event", "attempt_ended"}, {"attempt", 2}, {"node", "n2"}, {"cause", "evicted"}, {"blamed", false}});
  take({{"event", "straggler"}, {"attempt", 2}, {"node", "n2"}});
  take({{"event", "spare_health"}, {"node", "n4"}, {"fitness", "warning"}});
  take({{"event", "spare_health"}, {"node", "n5"}, {"fitness", "critical"}});
  take({{"event", "spare_health"}, {"node", "n6"}, {"fitness", "warning"}});
  take({{"event", "spare_health"}, {"node", "n6"}, {"fitness", "ok"}});
  take({{"event", "silent_corruption"}, {"attempt", 2}, {"nodes", {"n7"}}});
  take({{"event", "node_evicted"}, {"node", "n7"}});
  take({{"event", "silent_corruption"}, {"attempt", 2}, {"nodes", {"n8", "n9"}}});
  take({{"event", "node_evicted"}, {"node", "n10"}});
  EXPECT_EQ(of("n0"), "lost");
  EXPECT_EQ(of("n1"), "ended an attempt");
  EXPECT_EQ(of("n2"), "slow");
  EXPECT_EQ(of("n3"), "");
  EXPECT_EQ(of("n4"), "warned");
  EXPECT_EQ(of("n5"), "critical");
  EXPECT_EQ(of("n6"), "");
  EXPECT_EQ(of("n7"), "computed wrongly");
  EXPECT_EQ(of("n8"), "perhaps computed wrongly");
  EXPECT_EQ(of("n10"), "evicted");
}

TEST_F(Pasts, OutliveTheJobAndAStopOfTheRun) {
  job("7.0");
  planned(1);
  take({{"event", "node_lost"}, {"node", "n0"}, {"slot", 0}});
  take({{"event", "run_finished"}, {"exit_code", 93}, {"status", "stopped"}});
  now += 86400;
  job("8.0");
  EXPECT_TRUE(state.lost.empty());
  const Roster roster = test::roster_of({});
  EXPECT_EQ(score_of(roster, state, 0), (NodeScore{.failures = 1}));
  EXPECT_EQ(score_of(roster, state, 1), NodeScore{});
  now += 30 * 86400;
  take({{"event", "paused"}});
  EXPECT_EQ(score_of(roster, state, 0).failures, 1) << "the same all through the job";
  job("9.0");
  EXPECT_EQ(score_of(roster, state, 0).failures, 0);
}

TEST_F(Pasts, ANodeThatFailsAgainAndAgainIsAvoided) {
  job("7.0");
  for (int attempt = 1; attempt <= 4; ++attempt) {
    planned(attempt);
    take({{"event", "attempt_ended"},
          {"attempt", attempt},
          {"node", "n0"},
          {"cause", "gpu"},
          {"blamed", true}});
    if (attempt < 4)
      take({{"event", "attempt_ended"},
            {"attempt", attempt},
            {"node", "n1"},
            {"cause", "gpu"},
            {"blamed", true}});
    EXPECT_THAT(unwanted_nodes(state).doubtful,
                attempt < 4 ? std::vector<std::string>{} : std::vector<std::string>{"n0"});
  }
  EXPECT_THAT(unwanted_nodes(state, {{"n1", {3.5, {}}}}).doubtful, ElementsAre("n0", "n1"))
      << "by the ledger";
  std::map<std::string, NodeHistory> bad;
  for (int n = 1; n <= 9; ++n) bad["n" + std::to_string(n)].weight = 3 + n;
  EXPECT_THAT(unwanted_nodes(state, bad).doubtful,
              ElementsAre("n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"))
      << "the worst eight";
  take({{"event", "node_lost"}, {"node", "n0"}, {"slot", 0}});
  EXPECT_THAT(unwanted_nodes(state).doubtful, IsEmpty()) << "it is excluded anyway";
  now += 7 * 86400;
  job("8.0");
  EXPECT_THAT(unwanted_nodes(state).doubtful, IsEmpty()) << "it has faded";
}

/// Slots on nodes 0 to 2 (scalable units A, B, B); 3 is the batch host, 4 to 7 are spares.
class BetterNodes : public testing::Test {
 protected:
  Roster roster =
      test::roster_of({.slots = 3, .spares = 5, .units = {"A", "B", "B", "A", "A", "B", "B", "A"}});
  RunState state;
  std::vector<int> placement = {0, 1, 2};

  void failed(int node, int times = 1) {
    for (int i = 1; i <= times; ++i)
      state.pasts[roster.nodes[node].name].add({What::lost, state.job_began_at, 1, 10 * node + i});
  }
  void slow(int node) { state.pasts[roster.nodes[node].name].add({What::slow, state.job_began_at, 1, 1}); }
  std::vector<int> better() const { return with_better_nodes(roster, state, placement); }
};

TEST_F(BetterNodes, NothingChangesWithoutARecord) { EXPECT_EQ(better(), placement); }

TEST_F(BetterNodes, ANodeThatFailedBecomesASpare) {
  failed(1);
  EXPECT_THAT(better(), ElementsAre(0, 5, 2)) << "of its scalable unit";
  failed(5);
  EXPECT_THAT(better(), ElementsAre(0, 6, 2)) << "which has not failed itself";
  failed(6);
  EXPECT_THAT(better(), ElementsAre(0, 4, 2)) << "of another unit";
  failed(4), failed(7);
  EXPECT_EQ(better(), placement) << "the batch host stays a spare, and no other is better";
  failed(1);
  EXPECT_EQ(better(), placement) << "twice in the same attempt is once";
}

TEST_F(BetterNodes, TheWorstNodeFirst) {
  failed(0), failed(2, 2);
  state.lost = {"n4", "n6", "n7"};
  EXPECT_THAT(better(), ElementsAre(0, 1, 5));
}

TEST_F(BetterNodes, AFailedSpareForANodeThatFailedMoreOften) {
  failed(1, 3), failed(5), failed(6, 2), failed(4), failed(7);
  EXPECT_THAT(better(), ElementsAre(0, 5, 2));
}

TEST_F(BetterNodes, DoubtsAndTheLedgerCountWithinTheUnit) {
  slow(0);
  EXPECT_THAT(better(), ElementsAre(4, 1, 2));
  state.lost = {"n4", "n7"};
  EXPECT_EQ(better(), placement) << "the leaf switch weighs more";
  roster.nodes[1].past_failures = 2;
  EXPECT_THAT(better(), ElementsAre(0, 5, 2));
  roster.nodes[5].past_failures = 1;
  slow(6);
  EXPECT_THAT(better(), ElementsAre(0, 6, 2)) << "the ledger before doubts";
}

TEST_F(BetterNodes, NoSuspectTakesASlot) {
  failed(0);
  state.suspects = {"n4", "n5", "n6"};
  EXPECT_THAT(better(), ElementsAre(7, 1, 2));
}

TEST_F(BetterNodes, AmongSparesTheCleanestIsPromotedFirst) {
  failed(5), slow(6);
  EXPECT_EQ(best_spare(roster, state, placement, 1, {}), 6) << "a doubt is less than a failure";
  failed(6);
  EXPECT_EQ(best_spare(roster, state, placement, 1, {}), 4) << "a failure is more than the unit";
  failed(4), failed(7);
  EXPECT_EQ(best_spare(roster, state, placement, 1, {}), 3) << "and than being the batch host";
}

TEST_F(BetterNodes, EveryNodeHasOneSlotAtMost) {
  for (int seed = 0; seed < 500; ++seed) {
    state = {};
    unsigned random = 2654435761u * static_cast<unsigned>(seed + 1);
    const auto next = [&](unsigned below) {
      return (random = random * 1664525u + 1013904223u) / 65536u % below;
    };
    for (int n = 0; n < 8; ++n) {
      failed(n, static_cast<int>(next(3)));
      if (next(2)) slow(n);
      roster.nodes[n].past_failures = static_cast<int>(next(3));
      if (next(5) == 0) state.lost.insert(roster.nodes[n].name);
    }
    const auto after = better();
    EXPECT_EQ(after, better());
    ASSERT_EQ(after.size(), placement.size());
    EXPECT_EQ(std::set(after.begin(), after.end()).size(), after.size());
    for (std::size_t slot = 0; slot < after.size(); ++slot) {
      if (after[slot] == placement[slot]) continue;
      EXPECT_LT(score_of(roster, state, after[slot]), score_of(roster, state, placement[slot])) << seed;
      EXPECT_NE(after[slot], roster.batch_host);
      EXPECT_FALSE(state.lost.contains(roster.nodes[after[slot]].name));
    }
  }
}

}  // namespace
}  // namespace holdfast::launcher
