#pragma once
// Reading shard files below the level of tensors: whole blocks, each checked before it is handed out.
// Internal to checkpoint/.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {

class ShardReader {
 public:
  /// Opens shard `rank` of the checkpoint and compares its size and its record with the manifest. Throws
  /// Damaged.
  ShardReader(const fs::path& step_dir, const Manifest& manifest, std::size_t rank);

  /// Block k of the data span: checked bytes, valid until the next call. Throws Damaged when the checksum
  /// does not match.
  std::span<const char> block(std::int64_t k);
  std::int64_t block_first(std::int64_t k) const {
    return shard_.data_offset + k * block_bytes;
  }  ///< byte offset in the file
  /// The metadata extent, unchecked.
  std::string metadata();
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  void read(char* to, std::int64_t bytes, std::int64_t offset);
  [[noreturn]] void damaged(const std::string& why) const;

  fs::path step_dir_;
  const ShardInfo& shard_;
  files::Fd fd_;
  std::vector<char> buffer_;
  std::int64_t loaded_ = -1;  ///< the block in the buffer
  std::int64_t bytes_read_ = 0;
};

}  // namespace holdfast::checkpoint
