// Logs wait in the node's memory while shared storage does not take them.
#include "launcher/agent/ranks/log_spool.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <optional>
#include <thread>

#include "tests/control/loop_thread.hpp"
#include "tests/support/hung_file.hpp"

namespace holdfast::launcher {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class LogSpoolTest : public testing::Test {
 protected:
  LogSpoolTest() : run{folder.path / "run"}, scratch{folder.path / "scratch", "n0"} {
    files::fs::create_directories(run.logs());
    files::make_private_folder(scratch.folder);
  }
  ~LogSpoolTest() override {
    close();
    loop.end();
    files::fs::remove_all(scratch.folder);
  }
  void open() {
    loop.call([this] { spool = std::make_unique<LogSpool>(loop.loop, scratch, run); });
  }
  void close() {
    loop.call([this] { spool.reset(); });
  }
  files::fs::path log(const char* name) const { return run.logs() / "attempt-0001" / name; }
  void write(const files::fs::path& log, const std::string& text) const {
    std::ofstream(spooled(scratch, run, log), std::ios::app) << text;
  }
  bool is_copied() {
    loop.call([this] { spool->copy(); });
    return loop.until([this] { return spool->empty(); });
  }
  std::int64_t memory_of(const files::fs::path& log) const {
    struct stat info {};
    EXPECT_EQ(::stat(spooled_path(scratch, run, log).c_str(), &info), 0);
    return info.st_blocks * 512;
  }

  control::test::Folder folder;
  RunDir run;
  Scratch scratch;
  control::test::LoopThread loop;
  std::unique_ptr<LogSpool> spool;
};

TEST_F(LogSpoolTest, AFileOfTheRunDirectoryStaysOpenForAWhile) {
  open();
  write(log("rank-00000.log"), "one\n");
  ASSERT_TRUE(is_copied());
  files::fs::rename(log("rank-00000.log"), log("moved.log"));
  write(log("rank-00000.log"), "two\n");
  ASSERT_TRUE(is_copied());
  EXPECT_EQ(files::read_text(log("moved.log")), "one\ntwo\n");
  loop.call([this] { spool->forget_older(2); });
  ASSERT_TRUE(loop.until([this] {
    spool->copy();
    return !exists(spooled_path(scratch, run, log("rank-00000.log")));
  }));
  write(log("rank-00000.log"), "three\n");
  ASSERT_TRUE(is_copied());
  EXPECT_EQ(files::read_text(log("rank-00000.log")), "three\n") << "of an attempt that is over it does not";
}

TEST_F(LogSpoolTest, WhatIsWrittenComesToTheRunDirectoryOnce) {
  open();
  write(log("rank-00000.log"), "one\n");
  ASSERT_TRUE(is_copied());
  EXPECT_EQ(files::read_text(log("rank-00000.log")), "one\n");
  write(log("rank-00000.log"), "two\n");
  ASSERT_TRUE(is_copied());
  close();
  open();  // the next agent goes on where this one was
  write(log("rank-00000.log"), "three\n");
  ASSERT_TRUE(is_copied());
  EXPECT_EQ(files::read_text(log("rank-00000.log")), "one\ntwo\nthree\n");
}

TEST_F(LogSpoolTest, IsNotEmptyWhileAThreadIsAtItsFiles) {
  open();
  write(log("rank-00000.log"), "one\n");
  ASSERT_TRUE(is_copied());
  bool empty = true;
  loop.call([&] {
    spool->copy();
    empty = spool->empty();
  });
  EXPECT_FALSE(empty);  // whoever removes them now has them made again
}

TEST_F(LogSpoolTest, WhatIsCopiedTakesNoMemoryButForTheLastLines) {
  open();
  for (int k = 0; k < 40; ++k) write(log("rank-00000.log"), std::string(100 << 10, 'a' + k % 26));
  ASSERT_TRUE(is_copied());
  EXPECT_EQ(files::fs::file_size(log("rank-00000.log")), 40u * (100 << 10));
  EXPECT_TRUE(loop.until([this] { return memory_of(log("rank-00000.log")) <= 128 << 10; }));
}

TEST_F(LogSpoolTest, FilesOfOlderAttemptsGoOnceTheyAreCopied) {
  open();
  write(log("rank-00000.log"), "one\n");
  loop.call([this] { spool->forget_older(2); });
  ASSERT_TRUE(
      loop.until([this] { return !files::is_there(spooled_path(scratch, run, log("rank-00000.log"))); }));
  EXPECT_EQ(files::read_text(log("rank-00000.log")), "one\n");
}

TEST_F(LogSpoolTest, StorageThatHangsCostsOldLinesAndNoMoreMemoryThanStated) {
  files::fs::create_directories(log("x").parent_path());
  const auto file = log("rank-00000.log");
  files::create_exclusively(file, "");
  std::optional<holdfast::test::HungFile> storage(file);
  write(file, "the first line\n");
  open();
  for (int k = 0; k < 24; ++k) write(file, std::string((1 << 20) - 1, 'x') + "\n");
  write(file, "the last line\n");
  ASSERT_TRUE(loop.until([&] { return memory_of(file) <= LogSpool::max_waiting; }));

  storage.reset();
  EXPECT_TRUE(is_copied());
  close();
  const std::string heard = files::read_text(file);
  EXPECT_THAT(heard, StartsWith("the first line\n"));
  EXPECT_THAT(heard, HasSubstr("MiB of this log were dropped"));
  EXPECT_THAT(heard, EndsWith("the last line\n"));
}

/// An archive that was unpacked as a run directory may have anything in logs/.
TEST_F(LogSpoolTest, NothingIsWrittenThroughALink) {
  files::fs::create_directories(log("x").parent_path());
  const auto elsewhere = run.path / "elsewhere";
  files::create_exclusively(elsewhere, "mine\n");
  files::fs::create_symlink(elsewhere, log("rank-00000.log"));
  write(log("rank-00000.log"), "one\n");
  open();
  for (int i = 0; i < 3; ++i) {
    loop.call([this] { spool->copy(); });
    std::this_thread::sleep_for(Millis(50));
  }
  EXPECT_FALSE(loop.call([this] { return spool->empty(); })) << "it waits in the node's memory";
  EXPECT_EQ(files::read_text(elsewhere), "mine\n");
  files::fs::remove(log("rank-00000.log"));
  ASSERT_TRUE(is_copied());
  EXPECT_EQ(files::read_text(log("rank-00000.log")), "one\n");
}

}  // namespace
}  // namespace holdfast::launcher
