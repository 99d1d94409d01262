// Failed starts: which node is blamed, the delay of the next one, and the end of the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::placement_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// The PMIx server of the ranks on `n` ends before they have started.
void pmix_ends(FakeCluster& c, int n, const Launch& what) {
  const int slot =
      static_cast<int>(std::find(what.placement.begin(), what.placement.end(), n) - what.placement.begin());
  c.tell(n, [n, slot, attempt = what.attempt](Supervisor& s) {
    s.node_signs(n, {{{"pmix_ended", -1, 0, 5, "it ended with status 1", attempt}}});
    for (const int rank : {2 * slot, 2 * slot + 1})
      s.rank_failed(n, {rank, attempt, 1, "the rank's PMIx server has ended: it ended with status 1"});
  });
}

TEST(Starts, APmixServerThatEndsIsItsOwnNodesFault) {
  FakeCluster c;
  c.agent(1).starts = false;
  c.on_launch = [&](const Launch& what) {
    if (what.attempt == 1) pmix_ends(c, 1, what);
  };
  ASSERT_TRUE(c.training(2));
  const json ended = c.last("attempt_ended");
  EXPECT_EQ(ended["node"], "n1");
  EXPECT_EQ(ended["cause"], "PMIx server ended");
  EXPECT_EQ(ended["kind"], "infrastructure");
  EXPECT_THAT(std::string(ended["evidence"][0]),
              HasSubstr("the PMIx server of the node's ranks has ended on n1"));
  EXPECT_EQ(c.last("attempt_planned")["wait_s"], 1);
  EXPECT_GE(double(c.last("attempt_started")["unix"]) - double(ended["unix"]), 1);
  EXPECT_EQ(c.last("node_suspected")["node"], "n1");
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2"));
}

TEST(Starts, OnNoNode) {
  FakeCluster c;
  for (auto& agent : c.agents) agent.starts = false;
  c.on_launch = [&](const Launch& what) { pmix_ends(c, what.placement.front(), what); };
  // Each leader of the job knows how long it has lasted.
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 9; }, 300));
  c.new_leader(2);
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 700));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.result()["status"], "requeued");
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("attempts in a row before a new step, within 6"));
  std::vector<double> waits;
  for (const auto& planned : c.all("attempt_planned")) waits.push_back(planned.value("wait_s", 0.0));
  ASSERT_GT(waits.size(), 13u);
  const std::vector<double> first(waits.begin(), waits.begin() + 9);
  EXPECT_THAT(first, ElementsAre(0, 1, 2, 4, 8, 16, 32, 60, 60));
  EXPECT_NEAR(c.now - 1000, 600, 70) << "the last attempt may go beyond the limit";
  // The next job has time of its own and tries at once, but knows how long to wait after that.
  c.exit_code.reset();
  c.roster.job = "7.1";
  const int attempts = static_cast<int>(waits.size());
  c.new_leader(3);
  EXPECT_EQ(c.leader->state().setback_s, 0);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == attempts + 1; }, 10));
  EXPECT_EQ(c.last("attempt_planned").value("wait_s", 0.0), 0);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == attempts + 2; }, 10));
  EXPECT_EQ(c.last("attempt_planned")["wait_s"], 60);
  EXPECT_EQ(c.leader->state().no_progress, 0);
}

TEST(Starts, AProgramThatCrashesAtOnceIsTheProgramsFault) {
  FakeCluster c({.reports = false});
  c.on_launch = [&](const Launch& what) {
    c.tell(0, [attempt = what.attempt](Supervisor& s) { s.rank_exited(0, {0, attempt, 9}); });
  };
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 20));
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_EQ(c.result()["attempts"].size(), 3u);
}

TEST(Starts, AProgramThatIsNotThereIsTheProgramsFault) {
  FakeCluster c({.reports = false});
  c.on_launch = [&](const Launch& what) {
    for (const int n : {0, 1})
      c.tell(n, [n, attempt = what.attempt](Supervisor& s) {
        s.rank_failed(n, {2 * n, attempt, 127, "cannot start trainer (No such file or directory)"});
      });
  };
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 20));
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_EQ(c.result()["attempts"].size(), 1u);
}

/// Something that a program has started with is away for `away_s` after its first attempt; each start without
/// it fails at once, with this end of two ranks on two nodes.
class Away : public testing::TestWithParam<std::pair<int, const char*>> {
 protected:
  void starts(double away_s) {
    back_at_ = away_s;
    c.on_launch = [this](const Launch& what) {
      if (what.attempt == 1 || c.now >= back_at_) return;
      const auto [status, why] = GetParam();
      for (const int n : {0, 1})
        c.tell(n, [n, status, why = std::string(why), attempt = what.attempt](Supervisor& s) {
          if (why.empty())
            s.rank_exited(n, {2 * n, attempt, status});
          else
            s.rank_failed(n, {2 * n, attempt, status, why});
        });
    };
    ASSERT_TRUE(c.until(Stage::running));
    c.run(20);
    back_at_ = c.now + away_s;
    c.end_rank(1, 137);
    c.run(0.5);
  }
  FakeCluster c{{.reports = false}};

 private:
  double back_at_ = 0;
};

TEST_P(Away, IsWaitedFor) {
  starts(40);
  ASSERT_TRUE(c.until([&] { return c.now > 1060 && c.stage() == Stage::running; }, 60));
  c.run(15);
  EXPECT_FALSE(c.exit_code) << c.result().dump(1);
  EXPECT_EQ(c.stage(), Stage::running);
  std::vector<double> waits;
  for (const auto& planned : c.all("attempt_planned")) waits.push_back(planned.value("wait_s", 0.0));
  EXPECT_THAT(waits, ElementsAre(0, 0, 1, 2, 4, 8, 15, 15));
  c.end_rank(1, 137);
  c.run(0.5);
  EXPECT_EQ(c.leader->state().false_starts, 0);
}

TEST_P(Away, ForLongIsTheProgramsFault) {
  starts(1000);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 5; }, 20));
  c.new_leader(2);
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 100));
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_NEAR(c.now, 1020 + 60, 17) << "supervise.start_s, also under another leader";
  EXPECT_THAT(std::string(c.result()["why"]),
              HasSubstr("though the program had worked before; it was tried again for "));
}
INSTANTIATE_TEST_SUITE_P(
    Ends, Away,
    testing::Values(std::pair(2, ""), std::pair(1, ""), std::pair(93, ""),
                    std::pair(127, "cannot start /shared/train (No such file or directory)")));

/// Failures that end ranks during the load and belong to no single node.
class Blips : public testing::TestWithParam<const char*> {};
TEST_P(Blips, AreWaitedFor) {
  FakeCluster c;
  for (int blips = 0; blips < 5; ++blips) {
    ASSERT_TRUE(c.until([&] { return c.leader->attempt() == blips + 1 && c.stage() == Stage::running; }, 70));
    for (int n = 0; n < 3; ++n)
      for (int rank = 2 * n; rank < 2 * n + 2; ++rank) {
        c.tell(n, [=](Supervisor& s) { s.rank_failed(n, {rank, blips + 1, 1, GetParam()}); });
        c.end_rank(rank, 1);
      }
    ASSERT_TRUE(c.until([&] { return c.stage() != Stage::running; }, 20));
  }
  ASSERT_TRUE(c.training(6, 70));
  EXPECT_FALSE(c.exit_code);
  EXPECT_EQ(c.leader->state().setbacks, 0) << "it has made a step";
  EXPECT_EQ(c.leader->state().no_progress, 0);
}
INSTANTIATE_TEST_SUITE_P(Words, Blips,
                         testing::Values("write failed: No space left on device", "Stale file handle",
                                         "Connection reset by peer"));

}  // namespace
}  // namespace holdfast::launcher
