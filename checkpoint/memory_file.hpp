#pragma once
// A sparse file in memory, so that HDF5 can lay out a file of any size without touching a disk. HDF5 wants a
// path to a real file (not the link in /proc that a memfd has), so it has a name in /dev/shm until HDF5 has
// opened it.
#include <cstdint>
#include <filesystem>
#include <string>

#include "src/base/files.hpp"

namespace holdfast::checkpoint {

class MemoryFile {
 public:
  MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { forget_name(); }
  const std::filesystem::path& path() const { return path_; }
  /// Removes the name; from then on the file goes with the process, whatever happens to it.
  void forget_name();
  std::int64_t bytes() const;
  std::string read(std::int64_t first, std::int64_t count) const;
  /// True when nothing but zeros lies at or after `first`.
  bool zero_from(std::int64_t first) const;

 private:
  files::Fd fd_;
  std::filesystem::path path_;
};

}  // namespace holdfast::checkpoint
