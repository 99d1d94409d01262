#pragma once
// One rank's part of a save. HDF5 is used once, when the writer is made: it lays out the file in memory, and
// what it says about offsets is kept. A save is then plain writes of a byte image, with no HDF5 call and no
// open HDF5 handle.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/state.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

class ShardWriter {
 public:
  /// `pieces` are what this rank writes; their spans equal layout.of_rank[rank] (empty ones aside), and their
  /// memory stays valid and is read during write(). Touches no file in `checkpoints`.
  ShardWriter(fs::path checkpoints, int rank, Generation generation, State pieces, WriterLayout layout,
              Facts facts);
  ~ShardWriter();
  ShardWriter(ShardWriter&&) noexcept;
  ShardWriter& operator=(ShardWriter&&) noexcept;

  /// Writes this rank's shard into step-N.tmp-E-A and makes it durable; rank 0 also writes index.h5.
  /// `tensor_digests`: one per logical tensor, summed over all ranks, the same on every rank. Returns the
  /// payload of a "yes" vote. Throws Error when anything could not be written or synced (the rank then votes
  /// "no" with what()); its own files are removed as far as possible.
  std::string write(const RunPoint& point, std::span<const std::uint64_t> tensor_digests);

  /// Bytes of this rank's shard file.
  std::int64_t file_bytes() const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace holdfast::checkpoint
