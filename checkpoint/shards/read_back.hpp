#pragma once
// A writer's second look at its own file, past the page cache: what the disk gives back is what memory held.
// Internal to checkpoint/.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "checkpoint/index/manifest.hpp"
#include "checkpoint/io/direct_reader.hpp"
#include "checkpoint/shards/shard_writer.hpp"

namespace holdfast::checkpoint {

/// Bytes of the buffer that read_back() needs.
std::int64_t read_back_bytes(const ShardInfo& shard, ReadBack how_much);
/// Reads metadata, head and, of the blocks, those that `how_much` says, and compares them. `head` holds the
/// table; `step` chooses the sample. Throws Error that names what differs, or why it could not be read.
void read_back(const fs::path& file, const ShardInfo& shard, std::string_view metadata,
               std::span<const std::byte> head, ReadBack how_much, std::int64_t step,
               std::span<std::byte> buffer);

}  // namespace holdfast::checkpoint
