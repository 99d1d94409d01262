#include "checkpoint/io/direct_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/error.hpp"
#include "src/base/units.hpp"

namespace holdfast::checkpoint {
namespace {

/// Room for everything before the first byte. Where the file system cannot promise that, the writes will
/// tell.
int make_room(int fd, std::int64_t bytes) {
  int result = 0;
  do result = ::fallocate(fd, 0, 0, bytes);
  while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) result = ::ftruncate(fd, bytes);
  return result == 0 ? 0 : errno;
}

/// By fcntl and not on opening: a refused open with O_CREAT can leave an empty file behind.
bool ask_for_direct(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

}  // namespace

void check_room(const fs::path& folder, std::int64_t bytes) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) throw system_error("cannot look at " + folder.string(), errno);
  const std::int64_t free =
      static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
  const std::int64_t needed = bytes + bytes / 10;
  if (free < needed)
    throw Error(Exit::runtime, "there is no room for a checkpoint in " + folder.string(),
                size_text(free) + " are free, it takes " + size_text(needed) + " to be safe",
                "Remove what is not needed, or lower [checkpoint] keep?");
}

NewFile::NewFile(fs::path path, std::int64_t bytes, bool direct)
    : path_(std::move(path)), fd_(files::open(path_, O_WRONLY | O_CREAT | O_EXCL)) {
  if (const int reason = make_room(fd_.get(), bytes); reason != 0) {
    ::unlink(path_.c_str());
    throw system_error("cannot make room for " + path_.string(), reason);
  }
  direct_ = direct && ask_for_direct(fd_.get());
}

NewFile::~NewFile() {
  if (!kept_) ::unlink(path_.c_str());
}

void NewFile::write(std::span<const std::byte> bytes, std::int64_t offset) {
  while (!bytes.empty()) {
    const bool direct = direct_;
    const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && direct && (errno == EINVAL || errno == EOPNOTSUPP)) {
      go_on_buffered();
      continue;
    }
    if (n <= 0) throw system_error("cannot write " + path_.string(), n == 0 ? EIO : errno);
    // Starts the disk on what lies in the page cache now, so that the final fsync finds little left to do.
    if (!direct) (void)::sync_file_range(fd_.get(), offset, n, SYNC_FILE_RANGE_WRITE);
    bytes = bytes.subspan(n);
    offset += n;
    if (!bytes.empty() && direct) go_on_buffered();  // what is left need not be aligned any more
  }
}

void NewFile::finish() {
  files::sync(fd_.get(), path_);
  if (!direct_) (void)::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);  // nobody reads it soon
  const int fd = fd_.release();
  if (::close(fd) != 0) throw system_error("cannot close " + path_.string(), errno);
}

void NewFile::go_on_buffered() {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) != 0)
    throw system_error("cannot write " + path_.string(), errno);
  direct_ = false;  // only now: another thread that sees it takes EINVAL for final
}

}  // namespace holdfast::checkpoint
