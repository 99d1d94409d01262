#include "src/base/files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

namespace holdfast::files {
namespace {

TEST(SyncFolder, IsNothingToDoWhereTheFileSystemKnowsNone) {
  EXPECT_NO_THROW(sync_folder("/proc"));  // EINVAL
  EXPECT_ANY_THROW(sync_folder("/there/is/no/such/folder"));
}

/// On two nodes, it may be the processes of one number.
TEST(ReplaceAtomically, TwoWritersDoNotMixTheirTexts) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("holdfast-files-" + std::to_string(::getpid()));
  const auto write = [&](char letter, std::size_t length) {
    for (int i = 0; i < 200; ++i) replace_atomically(file, std::string(length, letter));
  };
  replace_atomically(file, std::string(10, 'a'));
  std::thread one([&] { EXPECT_NO_THROW(write('a', 10)); }), other([&] { EXPECT_NO_THROW(write('b', 20)); });
  for (int i = 0; i < 2000; ++i) {
    const std::string text = read_text(file);
    EXPECT_TRUE(text == std::string(10, 'a') || text == std::string(20, 'b')) << text;
  }
  one.join();
  other.join();
  std::filesystem::remove(file);
}

TEST(Reserve, GivesAFileAllOfItsRoom) {
  constexpr std::int64_t bytes = 8 << 20;
  const Fd fd(::memfd_create("large", MFD_CLOEXEC));
  ASSERT_TRUE(fd);
  ASSERT_EQ(reserve(fd.get(), bytes), 0);
  struct stat info {};
  ASSERT_EQ(::fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_size, bytes);
  EXPECT_EQ(info.st_blocks * 512, bytes);
}

TEST(Reserve, SaysWhyNot) {
  const Fd fd(::memfd_create("too large", MFD_CLOEXEC));
  EXPECT_EQ(reserve(fd.get(), -1), EINVAL);
}

}  // namespace
}  // namespace holdfast::files
