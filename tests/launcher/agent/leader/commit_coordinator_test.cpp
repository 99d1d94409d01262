// From votes to the commit outcome of a checkpoint, which waits for nothing that comes after the commit.
#include "launcher/agent/leader/commit_coordinator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <time.h>

#include <atomic>

#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"
#include "tests/control/loop_thread.hpp"
#include "tests/support/held_removals.hpp"

namespace holdfast::launcher {
namespace {

using namespace checkpoint::testing;
using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;
using tests::removals;

class CommitCoordinatorTest : public testing::Test {
 protected:
  CommitCoordinatorTest() {
    config::Checkpoint settings;
    settings.keep = 1;
    settings.commit_s = 1;
    loop.call([&] {
      coordinator = std::make_unique<CommitCoordinator>(
          loop.loop, folder.path(), settings,
          CommitCoordinator::Handlers{
              [this] { return may_commit.wait(false), true; },
              [this](const control::CommitOutcome& outcome, const std::string&, double stalled_s) {
                stalls[outcome.step] = stalled_s;
                if (outcome.durable) durable.push_back(outcome.step);
                if (!outcome.durable) dropped[outcome.step] = outcome.why;
                if (!keeps_outcomes) coordinator->tidy();
              },
              [this](const std::vector<std::int64_t>& steps) { removed.push_back(steps); },
              [this](int node, const control::CommitOutcome& outcome) {
                repeated.emplace_back(node, outcome.step);
              }});
      coordinator->begin({3, 7}, 2);
    });
  }
  ~CommitCoordinatorTest() override {
    removals.let_go();
    let_worker_go();
    loop.call([this] { coordinator.reset(); });
    loop.end();
  }
  /// `rank` reports that it has written its shard of `step`.
  std::string vote(std::int64_t step, int rank) {
    Whole whole(tensors, step);
    checkpoint::ShardWriter writer(folder.path(), rank, {3, 7}, tensors, layout, some_facts(2));
    const std::string payload = write_shard(writer, whole, {step, step, step});
    say(step, rank, payload);
    return payload;
  }
  void say(std::int64_t step, int rank, const std::string& payload) {
    control::NodeVotes votes{7, step, {}, {}};
    votes.add(rank, true, payload, 250'000 * rank);
    loop.call([&] { coordinator->take(rank, votes); });
  }
  /// Both ranks report.
  void save(std::int64_t step) { vote(step, 0), vote(step, 1); }
  /// Before its next commit the worker waits.
  void hold_worker() { may_commit = false; }
  void let_worker_go() {
    may_commit = true;
    may_commit.notify_all();
  }
  bool are_durable(std::size_t count) {
    return loop.until([&] { return durable.size() == count; });
  }

  const Folder folder;
  const std::vector<checkpoint::LogicalTensor> tensors = vectors({100, 33});
  const checkpoint::WriterLayout layout = even_layout(tensors, 2);
  control::test::LoopThread loop;
  std::unique_ptr<CommitCoordinator> coordinator;
  std::atomic<bool> may_commit = true;
  bool keeps_outcomes = false;  // and sends none
  std::vector<std::int64_t> durable;
  std::map<std::int64_t, std::string> dropped;
  std::map<std::int64_t, double> stalls;
  std::vector<std::vector<std::int64_t>> removed;
  std::vector<std::pair<int, std::int64_t>> repeated;
};

TEST_F(CommitCoordinatorTest, ASaveStallsAsLongAsTheRankThatWaitedLongest) {
  save(10);
  ASSERT_TRUE(are_durable(1));
  vote(20, 0);
  ASSERT_TRUE(loop.until([&] { return dropped.contains(20); })) << "rank 1 does not vote";
  EXPECT_EQ(stalls, (std::map<std::int64_t, double>{{10, 0.25}, {20, 0}}));
}

TEST_F(CommitCoordinatorTest, TheOutcomeComesBeforeRetention) {
  save(10);
  ASSERT_TRUE(are_durable(1));
  removals.hold();
  save(20);
  EXPECT_TRUE(are_durable(2)) << "the commit outcome waits for deletions";
  EXPECT_TRUE(removals.wait_for_one());
  save(30);
  EXPECT_TRUE(are_durable(3)) << "the next commit waits for deletions";
  loop.call([this] { EXPECT_TRUE(removed.empty()); });
  removals.let_go();
  EXPECT_TRUE(loop.until([this] { return removed.size() == 2; }));
  loop.call([this] {
    EXPECT_THAT(durable, ElementsAre(10, 20, 30));
    EXPECT_THAT(removed, ElementsAre(ElementsAre(10), ElementsAre(20)));
  });
  EXPECT_THAT(checkpoint::committed_steps(folder.path()), ElementsAre(30));
}

TEST_F(CommitCoordinatorTest, NothingIsRemovedBeforeTheOutcomeIsSent) {
  loop.call([this] { keeps_outcomes = true; });
  save(10);
  save(20);
  ASSERT_TRUE(are_durable(2));
  loop.settle();
  EXPECT_THAT(checkpoint::committed_steps(folder.path()), UnorderedElementsAre(10, 20));
  loop.call([this] { coordinator->tidy(); });
  EXPECT_TRUE(loop.until([this] { return !removed.empty(); }));
  EXPECT_THAT(checkpoint::committed_steps(folder.path()), ElementsAre(20));
}

TEST_F(CommitCoordinatorTest, FilesOfAnotherProgramStay) {
  const Folder own;
  for (const std::int64_t step : {10, 20}) {
    const std::string name = "model-" + std::to_string(step);
    write_file(own.path() / name, "abc");
    say(step, 0,
        R"({"kind":"files","path":")" + own.path().string() + R"(","files":1,"bytes":3,"list":[[")" + name +
            R"(",3,")" + std::string(64, 'a') + R"("]]})");
    say(step, 1, R"({"kind":"files","path":"","files":0,"bytes":0,"list":[]})");
  }
  ASSERT_TRUE(are_durable(2));
  say(30, 0, R"({"kind":"files","path":"/own","files":1,"bytes":3})");
  say(30, 1, R"({"kind":"files","path":"/own","files":1,"bytes":3})");
  ASSERT_TRUE(are_durable(3));
  loop.settle();
  EXPECT_THAT(checkpoint::committed_steps(folder.path()), ElementsAre(20, 10)) << "30 is only counted";
  EXPECT_TRUE(std::filesystem::exists(own.path() / "model-10"));
  loop.call([this] { EXPECT_TRUE(removed.empty()); });
}

TEST_F(CommitCoordinatorTest, VotesThatWaitBehindACommitAreNotMissing) {
  hold_worker();
  save(10);
  save(20);
  vote(30, 0);
  ASSERT_TRUE(loop.until([this] { return !dropped.empty(); })) << "its limit is a second";
  loop.call([this] {
    EXPECT_THAT(dropped, ElementsAre(Pair(30, "rank 1 and perhaps others did not vote in time")));
    EXPECT_TRUE(durable.empty());
  });
  let_worker_go();
  EXPECT_TRUE(are_durable(2));
}

TEST_F(CommitCoordinatorTest, ARepeatedVoteIsAnsweredToItsNode) {
  save(10);
  ASSERT_TRUE(are_durable(1));
  say(10, 1, "{}");
  loop.call([this] { EXPECT_THAT(repeated, ElementsAre(Pair(1, 10))); });
}

TEST_F(CommitCoordinatorTest, VotesAreCountedOnce) {
  const std::string zero = vote(10, 0);
  say(10, 0, zero);
  loop.call([this] { EXPECT_TRUE(durable.empty()); });
  hold_worker();
  const std::string one = vote(10, 1);
  say(10, 1, one);  // while it is being committed
  let_worker_go();
  ASSERT_TRUE(are_durable(1));
  loop.settle();
  loop.call([this] {
    EXPECT_THAT(durable, ElementsAre(10));
    EXPECT_TRUE(repeated.empty());
    EXPECT_TRUE(dropped.empty());
  });
}

TEST_F(CommitCoordinatorTest, TheLoopDoesNotReadWhatVotesSay) {
  const auto used = [](clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  std::string payload = "[1";
  while (payload.size() < (1u << 20)) payload += ",12345678";
  const double all = used(CLOCK_PROCESS_CPUTIME_ID);
  const double loops = loop.call([&] { return used(CLOCK_THREAD_CPUTIME_ID); });
  say(10, 0, payload + "]");
  say(10, 1, payload + "]");
  ASSERT_TRUE(loop.until([this] { return dropped.size() == 1; }));
  const double by_loop = loop.call([&] { return used(CLOCK_THREAD_CPUTIME_ID); }) - loops;
  EXPECT_LT(4 * by_loop, used(CLOCK_PROCESS_CPUTIME_ID) - all) << "most of the work is the worker's";
}

}  // namespace
}  // namespace holdfast::launcher
