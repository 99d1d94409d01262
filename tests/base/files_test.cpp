#include "src/base/files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "src/base/error.hpp"
#include "tests/support/as_nobody.hpp"

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

TEST(CloseFolder, OnlyTakesRights) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("holdfast-closed-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const mode_t before = ::umask(022);
  const auto closed = [&](mode_t is, mode_t mask) {
    ::chmod(folder.c_str(), is);
    ::umask(mask);
    close_folder(folder);
    struct stat facts {};
    ::stat(folder.c_str(), &facts);
    return facts.st_mode & 07777;
  };
  EXPECT_EQ(closed(0777, 022), 0750u);
  EXPECT_EQ(closed(02775, 002), 02750u) << "the group of what is made in it stays";
  EXPECT_EQ(closed(0755, 077), 0700u);
  EXPECT_EQ(closed(0700, 022), 0700u);
  ::umask(before);
  std::filesystem::remove(folder);
}

TEST(PrivateFolder, IsMadeOnceAndTakenAgain) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("holdfast-private-" + std::to_string(::getpid()));
  const mode_t before = ::umask(0);
  make_private_folder(folder);
  ::umask(before);
  struct stat facts {};
  ASSERT_EQ(::stat(folder.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
  EXPECT_NO_THROW(make_private_folder(folder));
  EXPECT_TRUE(is_private_folder(folder));
  std::filesystem::remove(folder);
  EXPECT_FALSE(is_private_folder(folder));
}

TEST(PrivateFolder, IsNothingThatSomebodyElseMayHavePutThere) {
  const std::filesystem::path all =
      std::filesystem::temp_directory_path() / ("holdfast-planted-" + std::to_string(::getpid()));
  make_private_folder(all);
  std::filesystem::create_directory(all / "open");
  ::chmod((all / "open").c_str(), 0710);
  create_exclusively(all / "file", "");
  make_private_folder(all / "own");
  std::filesystem::create_directory_symlink(all / "own", all / "link");
  std::filesystem::create_symlink(all / "nowhere", all / "dangling");
  for (const char* planted : {"open", "file", "link", "dangling"}) {
    EXPECT_FALSE(is_private_folder(all / planted)) << planted;
    try {
      make_private_folder(all / planted);
      ADD_FAILURE() << planted;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::runtime);
      EXPECT_NE(error.why().find("it is not private"), std::string::npos) << error.what();
    }
  }
  EXPECT_FALSE(std::filesystem::exists(all / "nowhere"));
  EXPECT_THROW(make_private_folder(all / "absent" / "folder"), Error);
  if (::geteuid() == 0) {  // what another user has made
    ASSERT_EQ(::chown((all / "own").c_str(), 65534, 65534), 0);
    EXPECT_FALSE(is_private_folder(all / "own"));
    EXPECT_THROW(make_private_folder(all / "own"), Error);
  }
  std::filesystem::remove_all(all);
}

TEST(ReadEnd, IsTheEndOrAll) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("holdfast-end-" + std::to_string(::getpid()));
  replace_atomically(file, "0123456789");
  EXPECT_EQ(read_end(file, 4), "6789");
  EXPECT_EQ(read_end(file, 100), "0123456789");
  std::filesystem::remove(file);
  EXPECT_ANY_THROW(read_end(file, 4));
}

/// Nobody writes to the FIFO, and the device has no end: whoever opened the one, or read the other, would not
/// come back.
TEST(Open, TakesRegularFilesAloneAndNeverWaits) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("holdfast-open-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto why = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::runtime);
      return error.why();
    }
    return "";
  };
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", folder / "endless");
  create_exclusively(folder / "file", "text");
  std::filesystem::create_symlink(folder / "file", folder / "link");
  for (const char* name : {"fifo", "endless"}) {
    EXPECT_EQ(why([&] { read_text(folder / name); }), "it is not a regular file") << name;
    EXPECT_EQ(why([&] { read_end(folder / name, 10); }), "it is not a regular file") << name;
    EXPECT_EQ(why([&] { read_part(folder / name, 0, 10); }), "it is not a regular file") << name;
  }
  EXPECT_EQ(why([&] { open(folder / "fifo", O_WRONLY | O_APPEND); }), "it is not a regular file");
  EXPECT_EQ(why([&] { read_text(folder); }), "Is a directory");
  EXPECT_FALSE(try_open(folder / "fifo", O_RDWR));
  EXPECT_EQ(errno, ENXIO);
  EXPECT_TRUE(open(folder, O_RDONLY | O_DIRECTORY));

  EXPECT_EQ(read_text(folder / "link"), "text");
  EXPECT_EQ(why([&] { read_text(folder / "link", {.links = false}); }), "it is a symbolic link");
  for (const int flags : {O_WRONLY | O_APPEND, O_RDWR, O_WRONLY | O_CREAT | O_APPEND, O_WRONLY | O_TRUNC})
    EXPECT_EQ(why([&] { open(folder / "link", flags); }), "it is a symbolic link") << flags;
  EXPECT_EQ(read_text(folder / "file"), "text");

  EXPECT_EQ(read_text(folder / "file", {.limit = 4}), "text");
  EXPECT_EQ(why([&] { read_text(folder / "file", {.limit = 3}); }), "it has more than 3 bytes");
  ASSERT_EQ(::truncate((folder / "file").c_str(), 1LL << 40), 0);
  EXPECT_EQ(why([&] { read_text(folder / "file"); }), "it has more than 1073741824 bytes");
  EXPECT_EQ(read_part(folder / "file", 2, 2), "xt");
  EXPECT_EQ(read_part(folder / "file", (1LL << 40) - 1, 10), std::string(1, '\0'));
  EXPECT_EQ(read_part(folder / "file", 1LL << 41, 10), "");
  EXPECT_THROW(read_text("/proc/self/comm", {.limit = 1}), Error) << "the kernel says that it has no bytes";
  EXPECT_NE(read_text("/proc/self/comm"), "");
  std::filesystem::remove_all(folder);
}

/// The kernel takes the lease from its holder, for which whoever opens the file waits.
TEST(Open, OpensAFileOnWhichAnotherProcessHasALease) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("holdfast-lease-" + std::to_string(::getpid()));
  create_exclusively(file, "text");
  ::signal(SIGIO, SIG_IGN);
  const Fd holder = open(file, O_RDWR);
  ASSERT_EQ(::fcntl(holder.get(), F_SETLEASE, F_WRLCK), 0);
  std::thread gives_it_back([&] {
    while (::fcntl(holder.get(), F_GETLEASE) == F_WRLCK) std::this_thread::yield();
    ::fcntl(holder.get(), F_SETLEASE, F_UNLCK);
  });
  EXPECT_EQ(read_text(file), "text");
  gives_it_back.join();
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

TEST(Look, HasThreeAnswers) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("holdfast-look-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  replace_atomically(folder / "file", "text");
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  const auto presence = [&](const char* name) { return look_at(folder / name).presence; };
  EXPECT_EQ(presence("file"), Presence::there);
  EXPECT_EQ(presence("other"), Presence::absent);
  EXPECT_EQ(presence("file/in it"), Presence::absent);
  EXPECT_EQ(presence("no folder/file"), Presence::absent);
  EXPECT_EQ(presence("dangling"), Presence::absent);
  EXPECT_EQ(look_at_entry(folder / "dangling").presence, Presence::there);
  EXPECT_EQ(presence("loop/file"), Presence::unknown);
  EXPECT_EQ(look_at(folder / "loop/file").error, ELOOP);
  EXPECT_TRUE(exists_or_fail(folder / "file"));
  EXPECT_FALSE(exists_or_fail(folder / "other"));
  EXPECT_FALSE(is_there(folder / "loop/file"));
  try {
    exists_or_fail(folder / "loop/file");
    ADD_FAILURE() << "what cannot be looked at is not absent";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::transient);
    EXPECT_EQ(error.problem(), "cannot look at " + (folder / "loop/file").string());
  }
  ASSERT_EQ(::chmod(folder.c_str(), 0), 0);
  EXPECT_EQ(test::as_nobody([&] { return std::to_string(look_at(folder / "file").error); }),
            std::to_string(EACCES));
  EXPECT_EQ(
      test::as_nobody([&] { return std::string(exists_or_fail(folder / "other") ? "there" : "absent"); }),
      "cannot look at " + (folder / "other").string() + " (Permission denied)");
  ::chmod(folder.c_str(), 0700);
  std::filesystem::remove_all(folder);
}

/// A full disk, played by a limit of the file's size.
TEST(Files, WhatCannotBeWrittenIsNotCreated) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("holdfast-exclusive-" + std::to_string(::getpid()));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(create_exclusively(file, "more than that"), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, ignored);
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_TRUE(create_exclusively(file, "more than that"));
  EXPECT_FALSE(create_exclusively(file, "again"));
  EXPECT_EQ(read_text(file), "more than that");
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace holdfast::files
