#pragma once
// manifest.json: the only thing a reader of a checkpoint believes. Text, strict reader and proofs
// (FORMAT.md).
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index/state.hpp"
#include "checkpoint/index/writer_layout.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// A checkpoint that is proven to be torn, truncated, altered or mixed up (a digest, a checksum or a size
/// does not hold): take the one before it. What is unknown is no damage: the two below. What else can go
/// wrong (another model) is a plain Error.
class Damaged : public Error {
 public:
  explicit Damaged(std::string problem, std::string why = {}, std::string hint = {})
      : Error(Exit::runtime, std::move(problem), std::move(why), std::move(hint)) {}
};

/// A checkpoint that cannot be read now (a system call failed, or a file or folder is missing): it may be
/// sound. Ask again (patience.hpp); never take the one before it, and never remove or replace it.
class Unreadable : public Error {
 public:
  Unreadable(const std::string& what, std::string why)
      : Error(Exit::transient, what + " cannot be read now", std::move(why)) {}

 protected:
  explicit Unreadable(Error error) : Error(std::move(error)) {}
};

/// A checkpoint of a format that this version does not know, under a digest that matches: it is sound for the
/// Holdfast that wrote it.
class NewerFormat : public Error {
 public:
  explicit NewerFormat(std::string problem, std::string why = {}, std::string hint = {})
      : Error(Exit::no_requeue, std::move(problem), std::move(why), std::move(hint)) {}
};

/// A sound checkpoint of a kind that its reader has no use for: the files of another program.
class OtherKind : public Error {
 public:
  explicit OtherKind(const std::string& which)
      : Error(Exit::no_requeue, which + " is of another kind",
              "it consists of files that another program has written, and only that program reads them",
              "See holdfast ckpt show?") {}
};

[[noreturn]] inline void refuse_manifest(const std::string& why) {
  throw Damaged("the manifest is not usable", why);
}

inline constexpr int format_version = 5;  ///< what holdfast-train writes; 1 to 4 are read too
inline constexpr int files_version = 6;   ///< of what other programs write (files_manifest.hpp)
inline constexpr int newest_version = files_version;
inline constexpr std::int64_t block_bytes = 64 << 10;      ///< of the payload, under one CRC32C
inline constexpr std::int64_t block_bytes_to_3 = 4 << 20;  ///< of the data span, up to version 3
inline constexpr std::int64_t record_bytes = 128;          ///< at the start of the data span
inline constexpr std::int64_t page_bytes = 4096;           ///< what extents of a shard are multiples of

/// Far above any model, far below overflow in bytes.
inline constexpr std::int64_t max_elements = std::int64_t{1} << 56;

/// One shard file: bytes [0, data_offset) are HDF5 metadata, [data_offset, payload_offset) the head (record
/// and block table), [payload_offset, bytes) the payload. Up to version 3 there is no head: the record alone
/// starts the data span, which the blocks cover, and the table is here.
struct ShardInfo {
  std::string file;
  std::int64_t bytes = 0, data_offset = 0;
  std::int64_t payload_offset = 0;  ///< 0: of version 3 or before
  std::uint32_t metadata_crc32c = 0;
  std::vector<std::uint32_t> block_crc32c;  ///< up to version 3; empty since
  std::string root;                         ///< XXH3-128, 32 hex digits: root_of(*this, its block table)
  std::vector<StoredPiece> pieces;          ///< up to version 4; empty since: pieces_of()
  bool has_head() const { return payload_offset > 0; }
};

/// The blocks of a shard of any version: which bytes each checksum covers.
struct Blocks {
  std::int64_t first = 0;  ///< byte offset in the file of block 0
  std::int64_t each = 0;   ///< bytes of a block; the last one may be shorter
  std::int64_t end = 0;    ///< bytes of the file
  std::int64_t count() const { return (end - first + each - 1) / each; }
  std::int64_t offset(std::int64_t k) const { return first + k * each; }
  std::int64_t bytes(std::int64_t k) const { return std::min(each, end - offset(k)); }
  std::int64_t at(std::int64_t offset) const { return (offset - first) / each; }  ///< the block of a byte
};
Blocks blocks_of(const ShardInfo& shard);
/// Bytes of a file or an extent that holds so many: rounded up to pages.
std::int64_t rounded_to_pages(std::int64_t used);
/// Bytes of a head with a table of so many blocks: record and table, rounded up to pages.
std::int64_t head_bytes(std::int64_t blocks);

/// The index of whole tensors that was written with a checkpoint, up to version 4.
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
  WriterLayout layout;             ///< since version 5
  std::vector<ShardInfo> shards;   ///< entry i was written by rank i
  std::optional<IndexInfo> index;  ///< up to version 4
};

/// What lies where in shard `rank`, in the order in which it was written. A pure function of the manifest.
std::vector<StoredPiece> pieces_of(const Manifest& manifest, std::size_t rank);

/// The file's text, self-digest included; in format_version.
std::string to_text(const Manifest& manifest);
/// Strict: throws Damaged that names the first thing wrong with `text`, prove() included; NewerFormat;
/// OtherKind.
Manifest parse_manifest(std::string_view text);
/// `step_dir`/manifest.json, unchecked. Throws Unreadable when it is missing or cannot be read; Damaged when
/// it is no file of a possible size.
std::string read_manifest_text(const fs::path& step_dir);
/// parse_manifest() of what was read there: complaints name the checkpoint.
Manifest parse_manifest_of(const fs::path& step_dir, std::string_view text);
/// Both.
Manifest read_manifest(const fs::path& step_dir);

/// Throws Damaged unless sizes, offsets, names and checksums fit together and every element of every tensor
/// is stored exactly once. parse_manifest() and the committer both call it: nothing is committed that would
/// be refused on reading.
void prove(const Manifest& manifest);
/// `table`: one CRC32C per block; `shard.block_crc32c` up to version 3, else what the head of the file says.
std::string root_of(const ShardInfo& shard, std::span<const std::uint32_t> table);
std::int64_t total_bytes(const Manifest& manifest);

}  // namespace holdfast::checkpoint
