// A checkpoint written once and kept: the format cannot drift unseen. When it changes on purpose, its version
// goes up, the old one stays here under its own name, and a new one is written with
//   checkpoint_test --gtest_also_run_disabled_tests --gtest_filter='*writeAgain'
#include <gmock/gmock.h>

#include "checkpoint/verify/verify.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;

fs::path golden(int version) {
  return fs::path(HOLDFAST_SOURCE_DIR) / "tests/checkpoint/golden" / ("version-" + std::to_string(version));
}

/// Version 1 had no bf16.
std::vector<LogicalTensor> tensors(int version) {
  return {{"model/model.embed_tokens.weight", 7, 8},
          {"model/model.norm.weight", 1, 5},
          {"optim/exp_avg/model.embed_tokens.weight", 7, 8},
          {"optim/exp_avg_sq/model.embed_tokens.weight", 7, 8, version == 1 ? DType::fp32 : DType::bf16}};
}

fs::path write_to(const fs::path& folder) {
  Whole whole(tensors(format_version), 3);
  return save(folder, whole, 3, {1, 2}, even_layout(whole.tensors, 2)).path;
}

TEST(Golden, isStillRead) {
  const char* const digests[] = {"5e564f5b0d2040f2", "2b719793a4faa808", "2b719793a4faa808",
                                 "2b719793a4faa808", "2b719793a4faa808"};
  for (int version = 1; version <= format_version; ++version) {
    Whole into(tensors(version), 0);
    const Loaded loaded = load(golden(version), into.view(whole_spans(into.tensors)));
    EXPECT_EQ(into.values, Whole(tensors(version), 3).values);
    EXPECT_EQ(digest_text(loaded.manifest.state_digest), digests[version - 1]);
    EXPECT_EQ(loaded.manifest.point,
              (RunPoint{3, 3 * 4096, 24, version < 2 ? "" : "calm", version < 3 ? "" : "even"}));
    EXPECT_EQ(loaded.manifest.facts, some_facts(2));
    EXPECT_THAT(verify(golden(version)).problems, ::testing::IsEmpty()) << version;
  }
}

TEST(Golden, isWhatIsWrittenToday) {
  const Folder folder;
  const fs::path today = write_to(folder.path());
  for (const char* name : {"manifest.json", "shard-00000.h5", "shard-00001.h5"})
    EXPECT_TRUE(read_file(today / name) == read_file(golden(format_version) / name)) << name;
}

TEST(Golden, DISABLED_writeAgain) {
  const Folder folder;
  fs::create_directories(golden(format_version).parent_path());
  fs::copy(write_to(folder.path()), golden(format_version),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

}  // namespace
}  // namespace holdfast::checkpoint
