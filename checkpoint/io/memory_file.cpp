#include "checkpoint/io/memory_file.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint {

MemoryFile::MemoryFile() : fd_(::memfd_create("holdfast-plan", MFD_CLOEXEC)) {
  if (!fd_) throw system_error("cannot make a file in memory", errno);
}

std::int64_t MemoryFile::bytes() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) throw system_error("cannot look at a file in memory", errno);
  return info.st_size;
}

std::string MemoryFile::read(std::int64_t first, std::int64_t count) const {
  std::string text(count, '\0');
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::pread(fd_.get(), text.data() + at, text.size() - at, first + static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw system_error("cannot read a file in memory", n == 0 ? EIO : errno);
    at += as_size(n);
  }
  return text;
}

bool MemoryFile::zero_from(std::int64_t first) const {
  // Only pages that were touched; with huge pages they may hold zeros, so they are looked at.
  for (off_t at = ::lseek(fd_.get(), first, SEEK_DATA); at >= 0; at = ::lseek(fd_.get(), at, SEEK_DATA)) {
    const off_t end = ::lseek(fd_.get(), at, SEEK_HOLE);
    if (end < 0) return false;
    const std::string text = read(at, end - at);
    if (std::any_of(text.begin(), text.end(), [](char c) { return c != 0; })) return false;
    at = end;
  }
  return true;
}

}  // namespace holdfast::checkpoint
