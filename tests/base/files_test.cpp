#include "src/base/files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace holdfast::files {
namespace {

TEST(SyncFolder, IsNothingToDoWhereTheFileSystemKnowsNone) {
  EXPECT_NO_THROW(sync_folder("/proc"));  // EINVAL
  EXPECT_ANY_THROW(sync_folder("/there/is/no/such/folder"));
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
