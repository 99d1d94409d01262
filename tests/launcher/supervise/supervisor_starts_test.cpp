// Failed starts: which node is blamed, on which node the next one starts, its delay, and the end of the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::placement_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> hosts_of(const FakeCluster& c) {
  std::vector<std::string> out;
  for (const auto& started : c.all("attempt_started")) out.push_back(started.value("host", ""));
  return out;
}

TEST(Starts, TheNextTryGoesFromAnotherNode) {
  FakeCluster c;
  c.agent(3).hosts = false;  // the leader's node, a spare
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(hosts_of(c), ElementsAre("n3", "n0"));
  const json ended = c.last("attempt_ended");
  EXPECT_EQ(ended["cause"], "ranks did not start");
  EXPECT_EQ(ended["node"], "n3");
  EXPECT_EQ(ended["failed_host"], "n3");
  EXPECT_FALSE(ended["healthy"]);
  EXPECT_FALSE(ended["blamed"]) << "nothing is known of the node as one of ranks";
  EXPECT_THAT(std::string(ended["evidence"][0]), HasSubstr("mpirun on n3 ended with exit code 1"));
  EXPECT_EQ(c.last("attempt_planned")["wait_s"], 1);
  EXPECT_GE(double(c.last("attempt_started")["unix"]) - double(ended["unix"]), 1);
  EXPECT_EQ(c.last("node_suspected")["node"], "n3");
  EXPECT_THAT(std::string(c.last("node_suspected")["evidence"]),
              HasSubstr("mpirun on n3 did not start the ranks (1 times); mpirun on n0 did"));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n1", "n2"));
  c.end_rank(1, 1);
  ASSERT_TRUE(c.training(3));
  EXPECT_EQ(hosts_of(c).back(), "n0") << "it stays where it works";
}

TEST(Starts, ATroubleOfTheLeadersNodeDuringTheRunEndsNothing) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.agent(3).hosts = false;
  c.end_rank(2, 137);
  ASSERT_TRUE(c.training(3));
  EXPECT_THAT(hosts_of(c), ElementsAre("n3", "n3", "n0"));
  EXPECT_FALSE(c.exit_code);
}

TEST(Starts, FromNoNode) {
  FakeCluster c;
  for (auto& agent : c.agents) agent.hosts = false;
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 400));
  EXPECT_EQ(c.exit_code, 75);
  EXPECT_EQ(c.result()["status"], "requeued");
  EXPECT_THAT(std::string(c.result()["why"]),
              HasSubstr("the infrastructure ended 10 attempts in a row before a new step; last: mpirun on"));
  EXPECT_THAT(hosts_of(c), ElementsAre("n3", "n0", "n1", "n2", "n4", "n3", "n0", "n1", "n2", "n4"));
  std::vector<double> waits;
  for (const auto& planned : c.all("attempt_planned")) waits.push_back(planned.value("wait_s", 0.0));
  EXPECT_THAT(waits, ElementsAre(0, 1, 2, 4, 8, 16, 32, 60, 60, 60));
  EXPECT_TRUE(c.all("node_suspected").empty()) << "nothing speaks against one of them";
  EXPECT_TRUE(c.leader->state().failures.empty());
  // The next job counts from zero; restarts are counted over all jobs.
  c.exit_code.reset();
  c.roster.job = "7.1";
  c.new_leader(3);
  EXPECT_EQ(c.leader->state().setbacks, 0);
  EXPECT_TRUE(c.leader->state().failed_starts.empty());
  EXPECT_EQ(c.leader->state().no_progress, 0);
}

TEST(Starts, ThePlanOfAnotherLeaderGoesOn) {
  FakeCluster c;
  c.agent(3).hosts = c.agent(0).hosts = false;
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2; }, 10));
  c.new_leader(3);
  ASSERT_TRUE(c.training(4));
  EXPECT_THAT(hosts_of(c), ElementsAre("n3", "n0", "n1")) << "attempt 2 had not been started";
}

TEST(Starts, ANodeThatCannotStartItIsNoNewCandidateForIt) {
  FakeCluster c;
  c.agent(3).hosts = false;
  ASSERT_TRUE(c.training(2));
  c.kill(1);
  ASSERT_TRUE(c.training(3));
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2")) << "n3 is a suspect";
}

TEST(Starts, HostThatDiesBeforeItHasSaidThatItRunsMpirun) {
  FakeCluster c;
  for (const int n : {0, 1, 2, 3}) c.agent(n).hosts = false;
  ASSERT_TRUE(c.until([&] { return hosts_of(c).size() == 4; }, 60));
  for (const int n : {0, 1, 2}) c.agent(n).starts = false;
  c.on_launch = [&](const Launch& what) {
    if (what.attempt != 5) return;
    EXPECT_EQ(what.host, 4);
    c.kill(4);
  };
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 6; }, 30)) << "not only after start_s";
  EXPECT_EQ(c.last("attempt_ended")["cause"], "mpirun's node lost");
  EXPECT_EQ(c.last("attempt_ended")["node"], "n4");
}

TEST(Starts, MpirunThatDoesNothingIsBlamedByTheClock) {
  FakeCluster c;
  for (const int n : {0, 1, 2}) c.agent(n).starts = false;
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2; }, 70));
  EXPECT_EQ(c.last("attempt_ended")["failed_host"], "n3");
  for (const int n : {0, 1, 2}) c.agent(n).starts = true;
  ASSERT_TRUE(c.training(2));
  EXPECT_THAT(hosts_of(c), ElementsAre("n3", "n0"));
}

TEST(Starts, ADaemonThatFailsIsItsOwnNodesFault) {
  FakeCluster c;
  c.agent(1).starts = false;
  ASSERT_TRUE(c.until(Stage::starting));
  c.tell(1, [](Supervisor& s) {
    s.node_signs(1, {{{"daemon_failed", -1, 213, 5, "it ended with status 213"}}});
  });
  c.run(0.1);
  c.tell(3, [](Supervisor& s) { s.mpirun_exited(3, {1, 213}); });
  ASSERT_TRUE(c.training(2));
  const json ended = c.last("attempt_ended");
  EXPECT_EQ(ended["node"], "n1");
  EXPECT_EQ(ended["cause"], "ranks did not start");
  EXPECT_THAT(std::string(ended["evidence"][0]), HasSubstr("mpirun's daemon has failed on n1"));
  EXPECT_FALSE(ended.contains("failed_host"));
  EXPECT_EQ(c.last("node_suspected")["node"], "n1");
  EXPECT_THAT(placement_of(c.last("attempt_planned")), ElementsAre("n0", "n4", "n2"));
  EXPECT_THAT(hosts_of(c), ElementsAre("n3", "n3"));
}

TEST(Starts, AProgramThatCrashesAtOnceIsTheProgramsFault) {
  // The exit status of a rank has priority over that of mpirun, in either order of arrival.
  FakeCluster c({.reports = false});
  c.on_launch = [&](const Launch& what) {
    c.tell(3, [attempt = what.attempt](Supervisor& s) { s.mpirun_exited(3, {attempt, 9}); });
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
