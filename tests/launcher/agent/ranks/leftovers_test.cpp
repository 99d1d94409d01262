// What lives on after a rank that has ended with 0: what trains, and what does no harm.
#include "launcher/agent/ranks/leftovers.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "launcher/agent/ranks/run_processes.hpp"
#include "src/base/subprocess.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::launcher {
namespace {

using Verdict = LeftoverWatch::Verdict;

/// What becomes of one process that has used `cpu_s` at the end of its rank, and `cores` since.
struct Case {
  const char* what;
  std::optional<double> rank_cpu_s;
  Leftover left;
  double cores;
  double ends_s;  ///< after the rank
  Verdict verdict;
  double after_s;
};

TEST(Leftovers, ThatTrainAreToldFromThoseThatDoNoHarm) {
  const Case cases[] = {
      {"training in the background", 0.004, {7, "python3", 0.0}, 1.0, 1e9, Verdict::train, 10},
      {"training that sleeps between its steps", 0.004, {7, "python3", 0.03}, 0.001, 1e9, Verdict::train, 10},
      {"training that starts on a busy node", 0.004, {7, "sh", 0.001}, 0.002, 1e9, Verdict::train, 10},
      {"training behind a long preparation", 60, {7, "python3", 0.0}, 0.9, 1e9, Verdict::train, 10},
      {"the same on a GPU, waiting", 60, {7, "python3", 5, true}, 0.01, 1e9, Verdict::train, 10},
      {"the rank of an earlier agent", std::nullopt, {7, "python3", 5}, 1, 1e9, Verdict::train, 10},
      {"a worker of a data loader", 3600, {7, "python3", 4000}, 1, 6, Verdict::none_left, 6},
      {"a tracker that ends at once", 3600, {7, "python3", 0.1}, 0, 0.1, Verdict::none_left, 0.25},
      {"an idle server", 3600, {7, "python3", 40}, 0.02, 1e9, Verdict::harmless, 10},
      {"an ssh-agent of a short rank", 0.004, {7, "ssh-agent", 0.05}, 0, 1e9, Verdict::harmless, 3},
      {"a sleep of a short rank", 0.001, {7, "sleep", 0}, 0, 1e9, Verdict::harmless, 3},
      {"a daemon for GPUs", 3600, {7, "nvidia-cuda-mps", 5, true}, 0.7, 1e9, Verdict::harmless, 3},
  };
  for (const Case& c : cases) {
    LeftoverWatch watch(c.rank_cpu_s, 100);
    for (double after = 0;; after += LeftoverWatch::look_every_s) {
      Leftover left = c.left;
      left.cpu_s += c.cores * after;
      const auto verdict =
          watch.judge(after < c.ends_s ? std::vector{left} : std::vector<Leftover>{}, 100 + after);
      if (verdict == Verdict::wait) continue;
      EXPECT_EQ(static_cast<int>(verdict), static_cast<int>(c.verdict)) << c.what;
      EXPECT_DOUBLE_EQ(after, c.after_s) << c.what;
      break;
    }
  }
}

TEST(Leftovers, ThatAreNotSeenAtOnceAreLookedForAgain) {
  LeftoverWatch watch(0.001, 100);
  EXPECT_EQ(watch.judge({}, 100), Verdict::wait) << "it may be in the midst of an exec";
  EXPECT_EQ(watch.judge({{7, "python3", 0.03}}, 100.25), Verdict::wait);
  EXPECT_EQ(watch.judge({{7, "python3", 0.05}}, 110), Verdict::train);
  LeftoverWatch none(0.001, 100);
  EXPECT_EQ(none.judge({}, 100), Verdict::wait);
  EXPECT_EQ(none.judge({}, 100.25), Verdict::none_left);
}

TEST(Leftovers, AreNamed) {
  LeftoverWatch watch(1.0, 0);
  watch.judge({{7, "python3"}, {8, "sleep"}}, 0);
  EXPECT_EQ(watch.names(), "python3 (7), sleep (8)");
  watch.judge(std::vector<Leftover>(9, {7, "a"}), 0);
  EXPECT_EQ(watch.names(), "a (7), a (7), a (7), a (7), a (7) and 4 more");
}

TEST(Leftovers, OfARankAreFoundWithWhatTheyHaveUsed) {
  const holdfast::test::Scratch scratch;
  const RunDir run{scratch.path()};
  Command rank;
  rank.argv = {"sh", "-c", "while :; do :; done >/dev/null 2>&1 & sleep 60 >/dev/null 2>&1 &"};
  rank.environment = {"PATH=/usr/bin:/bin", "HOLDFAST_RUN_DIR=" + run.path.string(), "HOLDFAST_NODE=n0",
                      "HOLDFAST_ATTEMPT=3", "HOLDFAST_RANK=5"};
  ASSERT_EQ(holdfast::run(rank, std::chrono::seconds(30)).status, 0);
  std::vector<Leftover> left;
  for (int looks = 0; looks < 200; ++looks) {
    left = processes_of_rank(run, "n0", 5, 3);
    if (left.size() == 2 && std::max(left[0].cpu_s, left[1].cpu_s) > 0.05) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ASSERT_EQ(left.size(), 2u);
  for (const Leftover& one : left) {
    EXPECT_EQ(one.cpu_s > LeftoverWatch::some_cpu_s, one.name == "sh") << one.name << " " << one.cpu_s;
    EXPECT_FALSE(one.gpu);
    EXPECT_EQ(::kill(one.pid, SIGKILL), 0);
  }
  EXPECT_TRUE(processes_of_rank(run, "n0", 4, 3).empty()) << "another rank";
}

}  // namespace
}  // namespace holdfast::launcher
