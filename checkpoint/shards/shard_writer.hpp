#pragma once
// One rank's part of a save. HDF5 is used once, when the writer is made: it lays out the file in memory, and
// what it says about offsets is kept. A save is then plain writes through small staging buffers, with no HDF5
// call and no open HDF5 handle.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/index/writer_layout.hpp"
#include "src/base/read_back.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

struct WriteOptions {
  ReadBack read_back = ReadBack::sample;
  bool direct = true;                  ///< past the page cache (O_DIRECT) where the file system can
  int threads = 2;                     ///< one checksums while the other writes
  std::int64_t chunk_bytes = 2 << 20;  ///< of one write, and of the staging buffer of each thread; a multiple
                                       ///< of block_bytes
};

/// What a write cost.
struct WriteCost {
  std::int64_t bytes = 0;
  double seconds = 0;      ///< from the first call to the durable file
  double cpu_seconds = 0;  ///< of all its threads
  bool direct = false;     ///< false: through the page cache, asked for or not
};

class ShardWriter {
 public:
  /// `tensors`: all of the run. What this rank writes is spans_of(tensors, layout, rank). Touches no file in
  /// `checkpoints`.
  ShardWriter(fs::path checkpoints, int rank, Generation generation, std::vector<LogicalTensor> tensors,
              WriterLayout layout, Facts facts, WriteOptions options = {});
  ~ShardWriter();
  ShardWriter(ShardWriter&&) noexcept;
  ShardWriter& operator=(ShardWriter&&) noexcept;

  /// What this rank writes.
  std::span<const PieceSpan> spans() const;

  /// Writes this rank's shard into step-N.tmp-T-A and makes it durable.
  /// `pieces`: those of spans() in their order, in any memory, which must not change meanwhile; empty ones
  /// are passed over. One call at a time, on any thread. Returns the payload of a "yes" vote. Throws Error
  /// when there is no room, or anything could not be written, synced or read back (the rank then votes "no"
  /// with what()); its own files are removed as far as possible.
  std::string write(const RunPoint& point, std::span<const PieceView> pieces);
  /// What the last write() cost; nothing when it failed.
  WriteCost last_cost() const;

  /// Bytes of this rank's shard file.
  std::int64_t file_bytes() const;
  /// Bytes of all shards of a checkpoint, nearly: what is asked of the disk before the first of them.
  std::int64_t checkpoint_bytes() const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace holdfast::checkpoint
