#pragma once
// A file that gets its name only when it is whole and durable; until then it lies beside it under another
// one, which goes away with the object.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "checkpoint/io/direct_file.hpp"

namespace holdfast::checkpoint {

class AsideFile {
 public:
  /// Makes room for `bytes` in the folder of `target`. Throws Error: usage when `target` exists or its folder
  /// does not, runtime when there is no room or no permission.
  AsideFile(fs::path target, std::int64_t bytes);

  /// Past the page cache where the file system can do that, as long as memory, offset and size are multiples
  /// of 4096.
  void write(std::span<const std::byte> bytes, std::int64_t offset) { file_->write(bytes, offset); }
  /// fsync, rename, fsync of the folder. Never replaces a file.
  void commit();

 private:
  fs::path target_;
  std::unique_ptr<NewFile> file_;
};

}  // namespace holdfast::checkpoint
