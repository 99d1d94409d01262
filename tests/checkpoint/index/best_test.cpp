// The mark of the best checkpoint.
#include "checkpoint/index/best.hpp"

#include <gmock/gmock.h>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/retention.hpp"
#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class BestTest : public ::testing::Test {
 protected:
  /// As far as its name tells.
  void commit(std::int64_t step) const { fs::create_directories(committed_path(path(), step)); }
  const fs::path& path() const { return folder_.path(); }
  const Folder folder_;
};

TEST_F(BestTest, IsTheNewestMarkWithItsCheckpoint) {
  EXPECT_FALSE(best_of(path()));
  commit(10), mark_best(path(), 10, 2.5);
  ASSERT_TRUE(best_of(path()));
  EXPECT_EQ(best_of(path())->step, 10);
  EXPECT_EQ(best_of(path())->held_out_loss, 2.5);
  mark_best(path(), 20, 1.5);
  EXPECT_EQ(best_of(path())->step, 10) << "step 20 is not committed yet, and may never be";
  commit(20);
  EXPECT_EQ(best_of(path())->step, 20);
}

TEST_F(BestTest, OlderMarksGoWhenItIsCommitted) {
  commit(10), mark_best(path(), 10, 2.5), mark_best(path(), 20, 1.5);
  unmark_older(path());
  EXPECT_TRUE(files::is_there(best_path(path(), 10)));
  commit(20);
  unmark_older(path());
  EXPECT_THAT(files::list(path()), ElementsAre("step-00000010", "step-00000020", "step-00000020.best"));
}

TEST_F(BestTest, LaterMarksGoWhenTheRunGoesOnBeforeThem) {
  for (const int step : {10, 20, 30}) commit(step), mark_best(path(), step, 1);
  unmark_later(path(), 20);
  EXPECT_EQ(best_of(path())->step, 20);
}

TEST_F(BestTest, AMarkThatCannotBeReadHasNoLoss) {
  commit(10);
  files::replace_atomically(best_path(path(), 10), "torn");
  EXPECT_EQ(best_of(path())->step, 10);
  EXPECT_EQ(best_of(path())->held_out_loss, std::nullopt);
}

TEST_F(Saved, theBestOneStaysWhateverRetentionSays) {
  save_steps({10, 20, 30});
  mark_best(path, 10, 2);
  EXPECT_THAT(retain(path, {1, 0}), ElementsAre(20));
  mark_best(path, 20, 1);
  EXPECT_THAT(retain(path, {1, 0}), IsEmpty()) << "step 20 is not there";
  EXPECT_EQ(best_of(path)->step, 10);
  save_steps({40});
  mark_best(path, 30, 0.5);
  EXPECT_THAT(retain(path, {1, 0}), ElementsAre(10)) << "it is the best one no more";
}

}  // namespace
}  // namespace holdfast::checkpoint
