// Folders that other users of a node can neither foresee nor take away from a run.
#include "src/control/private_place.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::control {
namespace {

class PrivatePlaceTest : public testing::Test {
 protected:
  test::Folder folder_;
  PrivatePlace place_{{"/runs/a"}, folder_.path, "holdfast-1-"};
  Key secret_ = random_key();
};

TEST_F(PrivatePlaceTest, WhoHasTheSecretFindsWhatWasMade) {
  EXPECT_EQ(find_private(place_, secret_), std::nullopt);
  const auto made = make_private(place_, secret_);
  EXPECT_TRUE(files::is_private_folder(made));
  EXPECT_EQ(made.parent_path(), folder_.path);
  EXPECT_EQ(make_private(place_, secret_), made);
  EXPECT_EQ(find_private(place_, secret_), made);
  EXPECT_EQ(find_private(place_, random_key()), std::nullopt);
  EXPECT_EQ(find_private({{"/runs/a"}, folder_.path, "holdfast-2-"}, secret_), std::nullopt);
  EXPECT_EQ(find_private({{"/runs/b"}, folder_.path, "holdfast-1-"}, secret_), std::nullopt)
      << "a copy of the run";
  EXPECT_EQ(find_private({{"/runs/./b/../a"}, folder_.path, "holdfast-1-"}, secret_), made);
}

TEST_F(PrivatePlaceTest, ATakenNameCostsNothingButAnother) {
  std::vector<std::filesystem::path> seen;
  // Folders, files and links that others have made, open to all: here only their mode and kind can differ.
  for (int kind = 0; kind < 3; ++kind) {
    seen.push_back(make_private(place_, secret_));
    std::filesystem::remove(seen.back());
    if (kind == 0) files::make_private_folder(seen.back()), ::chmod(seen.back().c_str(), 0777);
    if (kind == 1) std::ofstream(seen.back()) << "a file";
    if (kind == 2) std::filesystem::create_directory_symlink(folder_.path, seen.back());
    EXPECT_EQ(find_private(place_, secret_), std::nullopt);
  }
  const auto made = make_private(place_, secret_);
  EXPECT_THAT(seen, testing::Not(testing::Contains(made)));
  for (const auto& taken : seen) std::filesystem::remove(taken);
  EXPECT_EQ(make_private(place_, secret_), made) << "a name that is free again makes no second folder";
}

TEST_F(PrivatePlaceTest, WhenAllNamesAreTakenAnErrorSaysSo) {
  for (int taken = 0; taken < 64; ++taken) {
    const auto made = make_private(place_, secret_);
    ::chmod(made.c_str(), 0777);
  }
  try {
    make_private(place_, secret_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("is not private: a folder of user"));
  }
}

TEST_F(PrivatePlaceTest, WithoutAParentThereIsNoFolder) {
  EXPECT_THROW(make_private({{"/runs/a"}, folder_.path / "absent", "a-"}, secret_), Error);
}

TEST(LocalLevelPlace, IsWhereTheSettingSays) {
  EXPECT_EQ(local_level_place({"/runs/a"}, "auto").parent, node_memory);
  EXPECT_EQ(local_level_place({"/runs/a"}, "/scratch").parent, "/scratch");
  EXPECT_TRUE(is_called_local_level("/scratch/" + local_level_place({"/runs/a"}, "auto").stem + "0123"));
  for (const char* other : {"", "auto", "/", "/scratch", "/scratch/holdfast-state-", "holdfast-state-0."})
    EXPECT_FALSE(is_called_local_level(other)) << other;
}

}  // namespace
}  // namespace holdfast::control
