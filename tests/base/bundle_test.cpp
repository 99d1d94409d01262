#include "src/base/bundle.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace holdfast {
namespace {
namespace fs = std::filesystem;

// A source tree is not looked for where others may have put one: above a build in /tmp, or in a folder for
// all.
TEST(OwnFoldersAbove, EndBeforeAFolderForAll) {
  std::string made = (fs::temp_directory_path() / "above-XXXXXX").string();
  ASSERT_NE(::mkdtemp(made.data()), nullptr);
  const fs::path top = made, open = top / "open", tree = open / "tree", program = tree / "build/bin/program";
  fs::create_directories(program.parent_path());
  std::ofstream(program) << "program";
  EXPECT_TRUE(std::ranges::count(own_folders_above(program), top));
  ASSERT_EQ(::chmod(open.c_str(), 01777), 0);
  EXPECT_EQ(own_folders_above(program),
            (std::vector<fs::path>{program.parent_path(), program.parent_path().parent_path(), tree}));
  EXPECT_TRUE(own_folders_above(open / "missing/program").empty());
  fs::remove_all(top);
}

}  // namespace
}  // namespace holdfast
