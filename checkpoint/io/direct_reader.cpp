#include "checkpoint/io/direct_reader.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint {
namespace {

constexpr std::int64_t huge_page = 2 << 20;

[[noreturn]] void fail(int reason) { throw std::system_error(reason, std::generic_category()); }

int open_for_reading(const fs::path& path, int flags) {
  int fd = -1;
  // A pipe under the name of a shard must not make us wait for its writer.
  do fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
  while (fd < 0 && errno == EINTR);
  return fd;
}

/// What open() and read() say where direct reads are not supported, or not with our alignment.
bool means_not_direct(int reason) { return reason == EINVAL || reason == EOPNOTSUPP; }

}  // namespace

AlignedBuffer::AlignedBuffer(std::int64_t bytes) : bytes_(whole_pages(bytes)) {
  const bool huge = bytes_ >= huge_page;
  const std::int64_t unit = huge ? huge_page : direct_alignment;
  const auto size = as_size((bytes_ + unit - 1) / unit * unit);
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(as_size(unit), size)));
  if (bytes_ > 0 && !memory_) throw std::bad_alloc();
  // Only a hint. Pages that lie side by side let a disk be asked for more at once.
  if (huge) ::madvise(memory_.get(), size, MADV_HUGEPAGE);
}

DirectReader::DirectReader(const fs::path& path) : fd_(open_for_reading(path, O_DIRECT)), direct_(true) {
  if (!fd_ && means_not_direct(errno)) {
    fd_ = files::Fd(open_for_reading(path, 0));
    direct_ = false;
  }
  if (!fd_) fail(errno);
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) fail(errno);
  regular_ = S_ISREG(info.st_mode);
  bytes_ = info.st_size;
}

std::int64_t DirectReader::read(std::span<std::byte> to, std::int64_t offset) const {
  expects(reinterpret_cast<std::uintptr_t>(to.data()) % direct_alignment == 0 &&
              to.size() % direct_alignment == 0 && offset % direct_alignment == 0,
          "direct reads are aligned");
  std::size_t done = 0;
  while (done < to.size()) {
    const bool was_direct = direct_;
    const ssize_t n =
        ::pread(fd_.get(), to.data() + done, to.size() - done, offset + static_cast<off_t>(done));
    if (n > 0) {
      done += as_size(n);
      // Behind the end of the file, and an odd offset that the next direct read would be refused for.
      if (as_size(n) % direct_alignment != 0 && was_direct) break;
      continue;
    }
    if (n == 0) break;
    if (errno == EINTR) continue;
    if (!was_direct || !means_not_direct(errno)) fail(errno);
    if (::fcntl(fd_.get(), F_SETFL, 0) != 0) fail(errno);
    direct_ = false;
  }
  return static_cast<std::int64_t>(done);
}

}  // namespace holdfast::checkpoint
