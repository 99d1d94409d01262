#pragma once
// A file that is read once and in order: past the page cache where the file system allows it, so that a load
// neither copies twice nor drives out what others have cached. Internal to checkpoint/.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>

#include "src/base/as_size.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// Offsets, sizes and memory of direct reads are multiples of this.
inline constexpr std::int64_t direct_alignment = 4096;

constexpr std::int64_t whole_pages(std::int64_t bytes) {
  return (bytes + direct_alignment - 1) / direct_alignment * direct_alignment;
}

/// Whole pages of memory, aligned like them; their contents are undefined.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::int64_t bytes);
  std::span<std::byte> span() const { return {memory_.get(), as_size(bytes_)}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::int64_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

class DirectReader {
 public:
  /// Throws std::system_error: only the caller knows what a missing file means.
  explicit DirectReader(const fs::path& path);

  bool is_regular() const { return regular_; }
  std::int64_t bytes() const { return bytes_; }
  /// Fills `to` from `offset` on; less than that only at the end of the file. Memory, size and offset are
  /// aligned. Returns the bytes read; throws std::system_error. Any number of threads at once.
  std::int64_t read(std::span<std::byte> to, std::int64_t offset) const;

 private:
  files::Fd fd_;
  mutable std::atomic<bool> direct_;
  bool regular_ = false;
  std::int64_t bytes_ = 0;
};

}  // namespace holdfast::checkpoint
