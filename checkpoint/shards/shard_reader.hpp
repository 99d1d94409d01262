#pragma once
// Reading one shard file below the level of tensors: whole blocks, each with a checksum that was itself
// checked. Internal to checkpoint/.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/index/manifest.hpp"
#include "checkpoint/io/direct_reader.hpp"

namespace holdfast::checkpoint {

class ShardReader {
 public:
  /// Opens shard `rank` of the checkpoint; compares its size and its record with the manifest, and its block
  /// table with the root. Throws Damaged, or Unreadable.
  ShardReader(const fs::path& step_dir, const Manifest& manifest, std::size_t rank);

  const ShardInfo& info() const { return shard_; }
  const Blocks& blocks() const { return blocks_; }
  /// Bytes of blocks [first, first + count), read into `room`, not yet checked. Throws Damaged, or
  /// Unreadable. `room` is aligned, and whole pages.
  std::span<const std::byte> read(std::int64_t first, std::int64_t count, std::span<std::byte> room) const;
  /// Do these bytes of block k match its checksum?
  bool matches(std::int64_t k, std::span<const std::byte> bytes) const;
  /// "blocks 3 to 5 of 8 do not match their checksums", as Damaged.
  Damaged mismatch(std::int64_t first, std::int64_t count) const;

  /// The extent of HDF5 metadata, unchecked.
  std::string metadata() const;
  /// What making the reader has read: record and block table.
  std::int64_t head_bytes_read() const { return head_read_; }

 private:
  void read_head(const Manifest& manifest, std::size_t rank);
  void read_exactly(std::span<std::byte> room, std::int64_t bytes, std::int64_t offset) const;
  Damaged damaged(const std::string& why) const;

  fs::path step_dir_;
  const ShardInfo& shard_;
  Blocks blocks_;
  DirectReader file_;
  std::vector<std::uint32_t> table_;
  std::int64_t head_read_ = 0;
};

}  // namespace holdfast::checkpoint
