// A checkpoint written once and kept: the format cannot drift unseen. When it changes on purpose, its version
// goes up, the old one stays here under its own name, and a new one is written with
//   checkpoint_golden_test --gtest_also_run_disabled_tests --gtest_filter='*writeAgain'
#include <gmock/gmock.h>

#include "checkpoint/verify.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;

const fs::path golden = fs::path(HOLDFAST_SOURCE_DIR) / "tests/checkpoint/golden/version-1";
const std::vector<LogicalTensor> tensors = {{"model/model.embed_tokens.weight", 7, 8},
                                            {"model/model.norm.weight", 1, 5},
                                            {"optim/exp_avg/model.embed_tokens.weight", 7, 8},
                                            {"optim/exp_avg_sq/model.embed_tokens.weight", 7, 8}};

fs::path write_to(const fs::path& folder) {
  Whole whole(tensors, 3);
  return save(folder, whole, 3, {1, 2}, even_layout(tensors, 2)).path;
}

TEST(Golden, isStillRead) {
  Whole into(tensors, 0);
  const Loaded loaded = load(golden, into.view(even_layout(tensors, 1).of_rank[0]));
  EXPECT_EQ(into.values, Whole(tensors, 3).values);
  EXPECT_EQ(digest_text(loaded.manifest.state_digest), "5e564f5b0d2040f2");
  EXPECT_EQ(loaded.manifest.point, (RunPoint{3, 3 * 4096, 24}));
  EXPECT_EQ(loaded.manifest.facts, some_facts(2));
  EXPECT_THAT(verify(golden).problems, ::testing::IsEmpty());
}

TEST(Golden, isWhatIsWrittenToday) {
  const Folder folder;
  const fs::path today = write_to(folder.path());
  for (const char* name : {"manifest.json", "shard-00000.h5", "shard-00001.h5", "index.h5"})
    EXPECT_TRUE(read_file(today / name) == read_file(golden / name)) << name;
}

TEST(Golden, DISABLED_writeAgain) {
  const Folder folder;
  fs::create_directories(golden.parent_path());
  fs::copy(write_to(folder.path()), golden,
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

}  // namespace
}  // namespace holdfast::checkpoint
