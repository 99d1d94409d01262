#include "checkpoint/verify.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "checkpoint/catalog.hpp"
#include "checkpoint/crc32c.hpp"
#include "checkpoint/hash.hpp"
#include "checkpoint/shard_reader.hpp"
#include "checkpoint/verify_h5.hpp"
#include "src/base/digest.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

/// Adds what one block contributes to the logical digests of the pieces in it.
void add_digests(const Manifest& manifest, const ShardInfo& shard, std::span<const char> block,
                 std::int64_t block_first, std::vector<std::uint64_t>& digests) {
  const std::int64_t block_end = block_first + static_cast<std::int64_t>(block.size());
  for (const StoredPiece& piece : shard.pieces) {
    const auto tensor = static_cast<std::size_t>(piece.span.tensor);
    const DType type = manifest.tensors[tensor].type;
    const std::int64_t from = std::max(piece.offset, block_first);
    const std::int64_t to = std::min(piece.offset + bytes_of(piece.span, manifest.tensors), block_end);
    if (from >= to) continue;
    digests[tensor] +=
        digest_part(static_cast<std::uint64_t>(piece.span.first + (from - piece.offset) / bytes_of(type)),
                    block.data() + (from - block_first), type, (to - from) / bytes_of(type));
  }
}

class Verifier {
 public:
  Verifier(const fs::path& step_dir, const Progress& progress) : step_dir_(step_dir), progress_(progress) {}

  Verified run() {
    try {
      manifest_ = read_manifest(step_dir_);
    } catch (const Damaged& e) {
      result_.problems.push_back(e.what());
      return result_;
    }
    std::vector<std::uint64_t> digests(manifest_.tensors.size(), 0);
    for (std::size_t rank = 0; rank < manifest_.shards.size(); ++rank) shard(rank, digests);
    index();
    const bool data_is_good =
        result_.problems.empty();  // else the digests cannot match, and saying so adds nothing
    for (std::size_t t = 0; data_is_good && t < digests.size(); ++t)
      if (digests[t] != manifest_.digests[t])
        problem("tensor " + manifest_.tensors[t].name + " has digest " + digest_text(digests[t]) +
                ", the manifest says " + digest_text(manifest_.digests[t]));
    for (const std::string& text : problems_seen_by_hdf5(step_dir_, manifest_, openable_)) problem(text);
    return result_;
  }

 private:
  void problem(const std::string& text) { result_.problems.push_back(text); }

  void shard(std::size_t rank, std::vector<std::uint64_t>& digests) {
    const ShardInfo& info = manifest_.shards[rank];
    try {
      ShardReader reader(step_dir_, manifest_, rank);
      const std::string metadata = reader.metadata();
      if (crc32c(metadata.data(), metadata.size()) == info.metadata_crc32c)
        openable_.push_back(info.file);
      else
        problem(info.file + ": its HDF5 metadata does not match its checksum");
      result_.bytes += info.data_offset;
      for (std::int64_t k = 0; k < blocks_of(info); ++k) block(reader, info, k, digests);
    } catch (const Error& e) {
      problem(e.why().empty() ? e.what() : e.why());
    }
  }

  void block(ShardReader& reader, const ShardInfo& info, std::int64_t k,
             std::vector<std::uint64_t>& digests) {
    try {
      const std::span<const char> bytes = reader.block(k);
      add_digests(manifest_, info, bytes, reader.block_first(k), digests);
      result_.bytes += static_cast<std::int64_t>(bytes.size());
    } catch (const Damaged& e) {
      problem(e.why());
    }
    ++result_.blocks;
    if (progress_) progress_(result_.bytes, total_bytes(manifest_));
  }

  void index() {
    const IndexInfo& info = manifest_.index;
    const fs::path path = step_dir_ / info.file;
    struct stat seen {};
    if (::stat(path.c_str(), &seen) != 0) return problem(info.file + ": " + std::strerror(errno));
    if (!S_ISREG(seen.st_mode) || seen.st_size != info.bytes)
      return problem(info.file + ": it has " + std::to_string(seen.st_size) + " bytes, not " +
                     std::to_string(info.bytes));
    if (xxh3_128(files::read_text(path)) != info.xxh3)
      return problem(info.file + ": it does not match its checksum");
    result_.bytes += info.bytes;
    openable_.push_back(info.file);
  }

  fs::path step_dir_;
  const Progress& progress_;
  Manifest manifest_;
  Verified result_;
  std::vector<std::string> openable_;  ///< files whose HDF5 metadata is what was written
};

}  // namespace

Verified verify(const fs::path& step_dir, const Progress& progress) {
  return Verifier(step_dir, progress).run();
}

}  // namespace holdfast::checkpoint
