#include "launcher/agent/daemon/gpu_job_mapping.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "src/base/files.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::launcher {
namespace {

using testing::HasSubstr;

TEST(GpuJobList, LinesOfOtherJobsStay) {
  EXPECT_EQ(with_job("", "17"), "17\n");
  EXPECT_EQ(with_job("16\n", "17"), "16\n17\n");
  EXPECT_EQ(with_job("16", "17"), "16\n17\n") << "whose writer left out the last line feed";
  EXPECT_EQ(with_job("17\n", "17"), "17\n") << "left by an agent of this job that was killed";
  EXPECT_EQ(with_job("\n16\n\n", "17"), "16\n17\n") << "an empty line would be a job without a name";
  EXPECT_EQ(without_job("16\n17\n117\n17_1\n", "17"), "16\n117\n17_1\n");
  EXPECT_EQ(without_job("17\n", "17"), "");
  EXPECT_EQ(without_job("16", "17"), "16\n");
}

class GpuJobMappingTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder.path / name).parent_path());
    std::ofstream(folder.path / name) << text;
    return folder.path / name;
  }
  std::string text(const char* gpu) const {
    const auto file = folder.path / gpu;
    return files::is_there(file) ? files::read_text(file) : "none";
  }
  std::vector<std::string> names() const { return files::list(folder.path); }
  control::test::Folder folder;
};

TEST_F(GpuJobMappingTest, IsThereWhileTheJobIs) {
  write("1", "16\n");
  {
    const GpuJobMapping mapping(folder.path, "17", {"0", "1"});
    EXPECT_EQ(text("0"), "17\n");
    EXPECT_EQ(text("1"), "16\n17\n");
    struct stat facts {};
    ASSERT_EQ(::stat((folder.path / "0").c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777U, 0644U);
    write("0", "17\n18\n");  // a job that shares the GPU
    EXPECT_EQ(mapping.trouble(), "");
  }
  EXPECT_EQ(text("0"), "18\n");
  EXPECT_EQ(text("1"), "16\n");
  EXPECT_THAT(names(), testing::ElementsAre("0", "1")) << "nothing stays beside them";
}

TEST_F(GpuJobMappingTest, AFileWithoutAnyJobIsRemoved) {
  { const GpuJobMapping mapping(folder.path, "17", {"0"}); }
  EXPECT_THAT(names(), testing::IsEmpty());
  const GpuJobMapping mapping(folder.path, "17", {"0"});
  std::filesystem::remove(folder.path / "0");  // the site's epilog was first
}

TEST_F(GpuJobMappingTest, WhatCannotBeDoneIsSaidOnceAndHarmsNothing) {
  const auto trouble = [](const std::filesystem::path& place, std::vector<std::string> gpus) {
    return GpuJobMapping(place, "17", std::move(gpus)).trouble();
  };
  EXPECT_EQ(trouble("", {}), "") << "not asked for";
  EXPECT_THAT(trouble(folder.path, {}), HasSubstr("SLURM does not say which GPUs"));
  EXPECT_THAT(trouble(folder.path / "missing", {"0"}), HasSubstr("missing is not there"));
  EXPECT_THAT(trouble("/proc/self/fd", {"0"}), HasSubstr("no folder of this node's own"));
  EXPECT_THAT(trouble(write("file", ""), {"0"}), HasSubstr("Not a directory"));
}

TEST_F(GpuJobMappingTest, NothingButListsIsReadAndNoLinkIsFollowed) {
  const auto secret = write("elsewhere/key", "secret\n");
  std::filesystem::create_symlink(secret, folder.path / "0");
  ASSERT_EQ(::mkfifo((folder.path / "1").c_str(), 0600), 0);
  write("2", std::string(100'000, 'x'));
  std::filesystem::create_directory(folder.path / "3");
  for (const char* gpu : {"0", "1", "2", "3"}) {
    const GpuJobMapping mapping(folder.path, "17", {gpu});
    EXPECT_NE(mapping.trouble(), "") << gpu;
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path / "0"));
  EXPECT_EQ(files::read_text(secret), "secret\n");
}

TEST_F(GpuJobMappingTest, AFolderThatStaysLockedIsNotAwaitedForLong) {
  const files::Fd other = files::open(folder.path, O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  const GpuJobMapping mapping(folder.path, "17", {"0"});
  EXPECT_THAT(mapping.trouble(), HasSubstr("another process has locked"));
  EXPECT_EQ(text("0"), "none");
  ::flock(other.get(), LOCK_UN);
}

}  // namespace
}  // namespace holdfast::launcher
