#pragma once
// Reading many blocks of many shards at the speed of the disk: several reads in flight, each block checked
// before it is handed out. Internal to checkpoint/.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/shards/shard_reader.hpp"

namespace holdfast::checkpoint {

/// Neighbouring blocks of one shard, read together.
struct BlockRun {
  std::size_t shard = 0;
  std::int64_t first = 0, count = 0;
};

/// What is read at once, and how many such reads are in flight.
inline constexpr std::int64_t run_bytes = 8 << 20;
inline constexpr int scan_workers = 4;

/// The longest run of blocks of this size that is read at once.
constexpr std::int64_t blocks_per_run(std::int64_t bytes_of_a_block) {
  return bytes_of_a_block < run_bytes ? run_bytes / bytes_of_a_block : 1;
}

/// What happens with the blocks. Both are called by several workers, numbered from 0, at once.
struct BlockUse {
  /// Blocks [first, first + count) of runs[run]'s shard, checked; `bytes` start with block `first`.
  std::function<void(int worker, std::size_t run, const ShardReader& reader, std::int64_t first,
                     std::int64_t count, std::span<const std::byte> bytes)>
      checked;
  /// These blocks are damaged, or (count = that of the run) their shard. Without it the scan ends with the
  /// first damage, in the order of the runs.
  std::function<void(std::size_t run, std::int64_t first, std::int64_t count, const Damaged& why)> damaged =
      {};
};

/// Reads `runs`, which are ordered by shard. Returns the bytes read, heads of shards included. Throws Damaged
/// unless `use` takes damage, Unreadable when a file cannot be read now, and whatever `use` throws.
std::int64_t scan_blocks(const fs::path& step_dir, const Manifest& manifest, std::span<const BlockRun> runs,
                         const BlockUse& use);

}  // namespace holdfast::checkpoint
