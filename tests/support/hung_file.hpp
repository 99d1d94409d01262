#pragma once
// A file on storage that hangs, as far as a process without rights can make one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "src/base/files.hpp"

namespace holdfast::test {

/// Whoever opens the file, which must exist and be open nowhere, waits until this is gone: it has a lease
/// (fcntl(2)), which the kernel takes away after /proc/sys/fs/lease-break-time (45 s).
class HungFile {
 public:
  explicit HungFile(const std::filesystem::path& file) {
    ::signal(SIGIO, SIG_IGN);  // by which the kernel asks for it
    file_ = files::open(file, O_RDWR);
    EXPECT_EQ(::fcntl(file_.get(), F_SETLEASE, F_WRLCK), 0) << file;
  }

 private:
  files::Fd file_;  // the lease goes with it
};

}  // namespace holdfast::test
