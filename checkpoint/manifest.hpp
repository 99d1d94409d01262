#pragma once
// manifest.json: the only thing a reader of a checkpoint believes. Text, strict reader and proofs
// (FORMAT.md).
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/state.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// A checkpoint that is torn, truncated, altered, incomplete or mixed up: take the one before it. Everything
/// else that can go wrong (no permission, another model, a newer format) is a plain Error.
class Damaged : public Error {
 public:
  explicit Damaged(std::string problem, std::string why = {}, std::string hint = {})
      : Error(Exit::runtime, std::move(problem), std::move(why), std::move(hint)) {}
};

inline constexpr int format_version = 3;              ///< written; 1 and 2 are read too
inline constexpr std::int64_t block_bytes = 4 << 20;  ///< of the data span, under one CRC32C
inline constexpr std::int64_t record_bytes = 128;     ///< at the start of the data span

/// A piece and its byte offset in its shard file.
struct StoredPiece {
  PieceSpan span;
  std::int64_t offset = 0;
};

/// One shard file: bytes [0, data_offset) are HDF5 metadata, [data_offset, bytes) the data span.
struct ShardInfo {
  std::string file;
  std::int64_t bytes = 0, data_offset = 0;
  std::uint32_t metadata_crc32c = 0;
  std::vector<std::uint32_t> block_crc32c;
  std::string root;  ///< XXH3-128, 32 hex digits: root_of(*this)
  std::vector<StoredPiece> pieces;
};

struct IndexInfo {
  std::string file;
  std::int64_t bytes = 0;
  std::string xxh3;  ///< 32 hex digits
};

struct Manifest {
  int version = format_version;
  Generation generation;
  RunPoint point;
  Facts facts;
  std::vector<LogicalTensor> tensors;
  std::vector<std::uint64_t> digests;  ///< one per tensor
  std::uint64_t state_digest = 0;
  std::vector<ShardInfo> shards;  ///< entry i was written by rank i
  IndexInfo index;
};

/// The file's text, self-digest included.
std::string to_text(const Manifest& manifest);
/// Strict: throws Damaged that names the first thing wrong with `text`, prove() included; Error for a newer
/// format.
Manifest parse_manifest(std::string_view text);
/// Reads and parses `step_dir`/manifest.json. Damaged also when it is missing or cut.
Manifest read_manifest(const fs::path& step_dir);

/// Throws Damaged unless sizes, offsets, names and checksums fit together and every element of every tensor
/// is stored exactly once. parse_manifest() and the committer both call it: nothing is committed that would
/// be refused on reading.
void prove(const Manifest& manifest);
std::string root_of(const ShardInfo& shard);
std::int64_t blocks_of(const ShardInfo& shard);
std::int64_t total_bytes(const Manifest& manifest);

}  // namespace holdfast::checkpoint
