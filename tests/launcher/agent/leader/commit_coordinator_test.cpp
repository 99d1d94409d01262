// The commit outcome of a checkpoint does not wait for the work after the commit.
#include "launcher/agent/leader/commit_coordinator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"
#include "tests/control/loop_thread.hpp"
#include "tests/support/held_removals.hpp"

namespace holdfast::launcher {
namespace {

using namespace checkpoint::testing;
using testing::ElementsAre;
using tests::removals;

class CommitCoordinatorTest : public testing::Test {
 protected:
  CommitCoordinatorTest() {
    config::Checkpoint settings;
    settings.keep = 1;
    loop.call([&] {
      coordinator = std::make_unique<CommitCoordinator>(
          loop.loop, folder.path(), settings,
          CommitCoordinator::Handlers{
              [] { return true; },
              [this](const control::CommitOutcome& outcome, const std::string&) {
                if (outcome.durable) durable.push_back(outcome.step);
              },
              [this](const std::vector<std::int64_t>& steps) { removed.push_back(steps); },
              [](const control::CommitOutcome&) {}});
      coordinator->begin({3, 7}, 2);
    });
  }
  ~CommitCoordinatorTest() override {
    removals.let_go();
    loop.call([this] { coordinator.reset(); });
    loop.end();
  }
  /// Both ranks report that they have written their shards of `step`.
  void save(std::int64_t step) {
    Whole whole(tensors, step);
    for (int rank = 0; rank < 2; ++rank) {
      checkpoint::ShardWriter writer(folder.path(), rank, {3, 7}, tensors, layout, some_facts(2));
      const std::string payload = write_shard(writer, whole, {step, step, step});
      loop.call([&] { coordinator->vote({rank, 7, step, true, payload}); });
    }
  }
  bool are_durable(std::size_t count) {
    return loop.until([&] { return durable.size() == count; });
  }

  const Folder folder;
  const std::vector<checkpoint::LogicalTensor> tensors = vectors({100, 33});
  const checkpoint::WriterLayout layout = even_layout(tensors, 2);
  control::test::LoopThread loop;
  std::unique_ptr<CommitCoordinator> coordinator;
  std::vector<std::int64_t> durable;
  std::vector<std::vector<std::int64_t>> removed;
};

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

}  // namespace
}  // namespace holdfast::launcher
