#pragma once
// A new file that is written once: past the page cache where the file system can, through it where not.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "src/base/files.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// Throws Error, with how much there is and how much it takes, unless `bytes` and a tenth more are free in
/// `folder`: a disk that is full to the last byte hurts others too.
void check_room(const fs::path& folder, std::int64_t bytes);

class NewFile {
 public:
  /// Creates `path`, which must not exist, with room for all of its `bytes`: a full disk is found before the
  /// first of them. `direct`: with O_DIRECT if it can be had.
  NewFile(fs::path path, std::int64_t bytes, bool direct);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();  ///< removes the file unless keep() was called: a failed save frees its space at once

  /// On any thread, of any number at once. While direct(), memory, size and offset are multiples of 4096.
  void write(std::span<const std::byte> bytes, std::int64_t offset);
  /// fsync and close, both checked. Neither is ever tried again: the kernel may have dropped the pages.
  void finish();
  void keep() { kept_ = true; }

  /// False from the start, or since a write that the file system refused to do directly.
  bool direct() const { return direct_; }
  const fs::path& path() const { return path_; }

 private:
  void go_on_buffered();

  fs::path path_;
  files::Fd fd_;
  std::atomic<bool> direct_ = false;
  bool kept_ = false;
};

}  // namespace holdfast::checkpoint
