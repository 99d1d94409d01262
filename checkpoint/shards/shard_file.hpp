#pragma once
// Layout of one shard file: HDF5 is asked once where everything goes, and its metadata bytes are kept. And
// the head of its data span: record and block table.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index/manifest.hpp"

namespace holdfast::checkpoint {

/// Everything about a shard that does not change from save to save.
struct ShardPlan {
  ShardInfo info;                   ///< without root
  std::vector<StoredPiece> pieces;  ///< in the order given, empty ones left out; where placed() puts them
  std::string metadata;             ///< the bytes [0, data_offset)
};

/// Lays out the shard of `rank` among `world` writers. Touches no disk. Throws Error when HDF5 cannot.
ShardPlan plan_shard(int rank, int world, std::span<const LogicalTensor> tensors,
                     std::span<const PieceSpan> spans);

/// "model/norm.weight@128": the dataset of a piece, without the leading '/'.
std::string dataset_name(const LogicalTensor& tensor, std::int64_t first);
inline constexpr const char* record_name = "holdfast/record";
/// Elements (int64) of dataset record_name: the head since version 4, the record before.
std::int64_t record_elements(const ShardInfo& shard);

/// The record at the start of the data span (FORMAT.md).
struct Record {
  int version = format_version;
  Generation generation;
  RunPoint point;  ///< but its texts, which are in the manifest
  int rank = 0, world = 0;
  std::int64_t bytes = 0, data_offset = 0;
  std::int64_t payload_offset = 0;  ///< 0 up to version 3
};
/// The record that shard `rank` of a checkpoint must have.
Record record_of(const Manifest& manifest, std::size_t rank);
std::string record_text(const Record& record);  ///< record_bytes long
/// Nothing when `bytes` is this record; else what is wrong, for example "it is of step 100, generation 1-2,
/// rank 3".
std::string wrong_record(std::string_view bytes, const Record& expected);

/// The block table in a head: one CRC32C per block. `head`: head_bytes(blocks) of them.
std::span<std::uint32_t> table_in(std::span<std::byte> head, std::int64_t blocks);
std::span<const std::uint32_t> table_in(std::span<const std::byte> head, std::int64_t blocks);
/// Nothing when `head`, the bytes [data_offset, payload_offset) aligned to 4 at least, is what belongs to
/// `shard`: record, a table under its root, zeros after it; else what is wrong.
std::string wrong_head(std::span<const std::byte> head, const Record& expected, const ShardInfo& shard);

}  // namespace holdfast::checkpoint
