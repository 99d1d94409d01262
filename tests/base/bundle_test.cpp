#include "src/base/bundle.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
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

// Beside a program in a build, and in the libraries of an installation. Others are no backends of a release.
TEST(CudaModules, TheNewestReleaseIsTheFirst) {
  std::string made = (fs::temp_directory_path() / "modules-XXXXXX").string();
  ASSERT_NE(::mkdtemp(made.data()), nullptr);
  const fs::path top = made, beside = top / "bin", installed = top / "lib/holdfast";
  EXPECT_TRUE(cuda_modules(beside / "program").empty());
  fs::create_directories(beside);
  fs::create_directories(installed);
  for (const char* name : {"libholdfast-cuda-12.so", "libholdfast-cuda-.so", "libholdfast-cuda-9.so.old",
                           "libholdfast-cuda-sim.so", "libholdfast-cuda.so"})
    std::ofstream(beside / name) << "module";
  for (const char* name : {"libholdfast-cuda-12.so", "libholdfast-cuda-9.so", "libholdfast-cuda-13.so"})
    std::ofstream(installed / name) << "module";
  std::vector<std::pair<int, fs::path>> found;
  for (const auto& [release, file] : cuda_modules(beside / "program")) found.emplace_back(release, file);
  EXPECT_EQ(found, (std::vector<std::pair<int, fs::path>>{{13, installed / "libholdfast-cuda-13.so"},
                                                          {12, beside / "libholdfast-cuda-12.so"},
                                                          {12, installed / "libholdfast-cuda-12.so"},
                                                          {9, installed / "libholdfast-cuda-9.so"}}));
  fs::remove_all(top);
}

}  // namespace
}  // namespace holdfast
