#pragma once
// What to read from which shard and where it goes: global element indices against global element indices.
// Pure. Internal to checkpoint/.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/index/manifest.hpp"
#include "checkpoint/index/state.hpp"
#include "checkpoint/shards/block_scan.hpp"

namespace holdfast::checkpoint {

/// Elements [first, first + count) of a tensor, and where in which shard they are stored.
struct Stored {
  std::int64_t first, count;
  std::size_t shard;
  std::int64_t offset;
};
/// For each tensor of the manifest, all its pieces in the order of their first element. The manifest has
/// proved that they are the whole tensor and do not overlap.
std::vector<std::vector<Stored>> where_stored(const Manifest& manifest);

/// Bytes of one shard file and the memory they go to.
struct Copy {
  std::int64_t offset, bytes;
  std::byte* to;
  std::size_t piece;       ///< of `into`
  std::int64_t reach = 0;  ///< where the copies up to this one end: grows, even if two ask for the same bytes
};

/// What is read together, and which copies take something from it.
struct LoadPlan {
  std::vector<std::vector<Copy>> copies;  ///< of each shard, in the order of their offsets
  std::vector<BlockRun> runs;             ///< in the order of shards and offsets; no block twice
};

/// The plan for `into`. Throws Error when the checkpoint `step_dir` (named in messages only) has no such
/// tensor, or one of another shape or type.
LoadPlan plan_load(const fs::path& step_dir, const Manifest& manifest, const State& into);

}  // namespace holdfast::checkpoint
