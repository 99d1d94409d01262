#pragma once
// A sparse file in memory, without a name and so without remains, in which HDF5 can lay out a file of any
// size.
#include <cstdint>
#include <filesystem>
#include <string>

#include "src/base/files.hpp"

namespace holdfast::checkpoint {

class MemoryFile {
 public:
  MemoryFile();
  /// A link that this process can open; HDF5's stdio driver follows it, its default driver does not.
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }
  std::int64_t bytes() const;
  std::string read(std::int64_t first, std::int64_t count) const;
  /// True when nothing but zeros lies at or after `first`.
  bool zero_from(std::int64_t first) const;

 private:
  files::Fd fd_;
};

}  // namespace holdfast::checkpoint
