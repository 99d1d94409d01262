#pragma once
// Layout of one shard file: HDF5 is asked once where everything goes, and its metadata bytes are kept.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace holdfast::checkpoint {

/// Everything about a shard that does not change from save to save.
struct ShardPlan {
  ShardInfo info;        ///< without block_crc32c and root; pieces in the order given, empty ones left out
  std::string metadata;  ///< the bytes [0, data_offset)
};

/// Lays out the shard of `rank` among `world` writers. Touches no disk. Throws Error when HDF5 cannot.
ShardPlan plan_shard(int rank, int world, std::span<const LogicalTensor> tensors,
                     std::span<const PieceSpan> spans);

/// "model/norm.weight@128": the dataset of a piece, without the leading '/'.
std::string dataset_name(const LogicalTensor& tensor, std::int64_t first);
inline constexpr const char* record_name = "holdfast/record";

/// The record at the start of the data span (FORMAT.md).
struct Record {
  int version = format_version;
  Generation generation;
  RunPoint point;
  int rank = 0, world = 0;
  std::int64_t bytes = 0, data_offset = 0;
};
std::string record_text(const Record& record);  ///< record_bytes long
/// Nothing when `bytes` is this record; else what is wrong, for example "it is of step 100, generation 1-2,
/// rank 3".
std::string wrong_record(std::string_view bytes, const Record& expected);

}  // namespace holdfast::checkpoint
