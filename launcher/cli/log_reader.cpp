#include "launcher/cli/log_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/base/access.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::uint64_t block = 1 << 20;

std::uint64_t size_of(int fd, const std::filesystem::path& file) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) throw system_error("cannot read " + file.string(), errno);
  return static_cast<std::uint64_t>(facts.st_size);
}

std::string read_at(int fd, std::uint64_t at, std::uint64_t bytes, const std::filesystem::path& file) {
  std::string out(bytes, '\0');
  const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(at));
  if (got < 0) throw system_error("cannot read " + file.string(), errno);
  out.resize(static_cast<unsigned long>(got));
  return out;
}

/// Where the last `lines` lines begin.
std::uint64_t begin_of(int fd, std::uint64_t size, std::int64_t lines, const std::filesystem::path& file) {
  std::int64_t ends = 0;
  for (std::uint64_t end = size; end > 0;) {
    const std::uint64_t begin = end - std::min(block, end);
    const std::string text = read_at(fd, begin, end - begin, file);
    for (std::size_t i = text.size(); i-- > 0;) {
      const bool last = begin + i + 1 == size;  // it ends the last line
      if (text[i] == '\n' && !last && ++ends == lines) return begin + i + 1;
    }
    end = begin;
  }
  return 0;
}

}  // namespace

LogReader::LogReader(std::filesystem::path file, std::int64_t last_lines)
    : file_(std::move(file)), last_lines_(last_lines) {}

std::string LogReader::more() {
  if (!may_read(file_)) refuse_reading(file_);
  if (!files::is_there(file_)) return "";
  const auto fd = files::open(file_, O_RDONLY | O_CLOEXEC);
  const std::uint64_t size = size_of(fd.get(), file_);
  if (!begun_ && last_lines_ >= 0)
    at_ = last_lines_ == 0 ? size : begin_of(fd.get(), size, last_lines_, file_);
  begun_ = true;
  if (size < at_) at_ = 0;
  std::string out = read_at(fd.get(), at_, std::min(block, size - at_), file_);
  at_ += out.size();
  return out;
}

}  // namespace holdfast::launcher
