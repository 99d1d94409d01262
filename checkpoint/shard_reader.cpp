#include "checkpoint/shard_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "checkpoint/crc32c.hpp"
#include "checkpoint/shard_file.hpp"

namespace holdfast::checkpoint {

ShardReader::ShardReader(const fs::path& step_dir, const Manifest& manifest, std::size_t rank)
    : step_dir_(step_dir), shard_(manifest.shards.at(rank)) {
  int fd = -1;
  do fd = ::open((step_dir / shard_.file).c_str(), O_RDONLY | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) damaged("it is missing");
  if (fd < 0) throw system_error("cannot open " + (step_dir / shard_.file).string(), errno);
  fd_ = files::Fd(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    throw system_error("cannot look at " + (step_dir / shard_.file).string(), errno);
  if (!S_ISREG(info.st_mode) || info.st_size != shard_.bytes)
    damaged("it has " + std::to_string(info.st_size) + " bytes, not " + std::to_string(shard_.bytes));

  char record[record_bytes];
  read(record, record_bytes, shard_.data_offset);
  const Record expected{manifest.version,
                        manifest.generation,
                        manifest.point,
                        static_cast<int>(rank),
                        static_cast<int>(manifest.shards.size()),
                        shard_.bytes,
                        shard_.data_offset};
  if (const std::string wrong = wrong_record({record, record_bytes}, expected); !wrong.empty())
    damaged(wrong);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

std::span<const char> ShardReader::block(std::int64_t k) {
  const std::int64_t first = block_first(k), bytes = std::min(block_bytes, shard_.bytes - first);
  if (loaded_ != k) {
    buffer_.resize(static_cast<std::size_t>(std::min(block_bytes, shard_.bytes - shard_.data_offset)));
    loaded_ = -1;
    read(buffer_.data(), bytes, first);
    if (crc32c(buffer_.data(), static_cast<std::size_t>(bytes)) !=
        shard_.block_crc32c.at(static_cast<std::size_t>(k)))
      damaged("block " + std::to_string(k) + " of " + std::to_string(blocks_of(shard_)) +
              " does not match its checksum");
    loaded_ = k;
  }
  return {buffer_.data(), static_cast<std::size_t>(bytes)};
}

std::string ShardReader::metadata() {
  std::string bytes(static_cast<std::size_t>(shard_.data_offset), '\0');
  read(bytes.data(), shard_.data_offset, 0);
  return bytes;
}

void ShardReader::read(char* to, std::int64_t bytes, std::int64_t offset) {
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_.get(), to, static_cast<std::size_t>(bytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) damaged(std::string("it cannot be read: ") + std::strerror(errno));
    if (n == 0) damaged("it ends too early");
    to += n, bytes -= n, offset += n, bytes_read_ += n;
  }
}

void ShardReader::damaged(const std::string& why) const {
  throw Damaged("checkpoint " + step_dir_.string() + " is damaged", shard_.file + ": " + why);
}

}  // namespace holdfast::checkpoint
