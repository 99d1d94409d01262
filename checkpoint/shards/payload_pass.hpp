#pragma once
// The one pass over the payload of a shard that a save makes: pieces, wherever they lie in memory, are copied
// into a small staging buffer; checksums and digests of what is there; then the write. A few threads take
// chunks in turn, so that one computes while another waits for the disk. Internal to checkpoint/.
//
// Why a copy: a direct write wants whole pages, and in the file pieces are neither on pages nor in the order
// of anybody's memory. The copy is made a block at a time, so that the checksum reads from the cache.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/index/manifest.hpp"
#include "checkpoint/io/direct_file.hpp"
#include "checkpoint/io/direct_reader.hpp"

namespace holdfast::checkpoint {

/// Processor seconds of the calling thread so far.
double thread_cpu_seconds();

class PayloadPass {
 public:
  /// `chunk_bytes` per write and thread, a multiple of block_bytes.
  PayloadPass(const ShardInfo& shard, std::span<const StoredPiece> pieces,
              std::span<const LogicalTensor> tensors, int threads, std::int64_t chunk_bytes);

  /// `pieces`: where each piece of the shard lies, in its order. `table` gets a CRC32C per block. Throws
  /// Error when a write fails; what was written by then is undefined.
  void run(std::span<const std::byte* const> pieces, std::span<std::uint32_t> table, NewFile& file);

  /// Of the last run, in the order of the shard's pieces.
  std::span<const std::uint64_t> piece_digests() const { return workers_.front().digests; }
  double cpu_seconds_elsewhere() const { return cpu_seconds_; }  ///< of its threads but the caller's

 private:
  /// A piece in the order of the file, as bytes of the payload.
  struct Placed {
    std::int64_t from, to;
    std::int64_t first;  ///< global index of its first element
    DType type;
    std::size_t piece;  ///< its index in the shard
  };
  /// What a thread has for itself.
  struct Worker {
    AlignedBuffer staging;
    std::vector<std::uint64_t> digests;
    double cpu_seconds = 0;
  };
  void stage(std::span<const std::byte* const> pieces, std::span<std::uint32_t> table, std::int64_t from,
             std::int64_t to, Worker& worker);

  std::int64_t payload_offset_, payload_bytes_, chunk_bytes_;
  std::vector<Placed> placed_;
  std::vector<Worker> workers_;  ///< one per thread
  double cpu_seconds_ = 0;
};

}  // namespace holdfast::checkpoint
