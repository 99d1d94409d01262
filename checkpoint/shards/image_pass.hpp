#pragma once
// The one pass over the payload of a shard image that a save makes: checksums and digests of what is in
// memory, then the writes. A few threads take chunks in turn, so that one computes while another waits for
// the disk. Internal to checkpoint/.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/index/manifest.hpp"
#include "checkpoint/io/direct_file.hpp"

namespace holdfast::checkpoint {

/// Processor seconds of the calling thread so far.
double thread_cpu_seconds();

class ImagePass {
 public:
  /// `chunk_bytes` per write, a multiple of block_bytes.
  ImagePass(const ShardInfo& shard, std::span<const LogicalTensor> tensors, int threads,
            std::int64_t chunk_bytes);

  /// `payload`: the bytes [payload_offset, bytes) of the file; `table` gets a CRC32C per block. Throws Error
  /// when a write fails; what was written by then is undefined.
  void run(std::span<const std::byte> payload, std::span<std::uint32_t> table, NewFile& file);

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
    std::vector<std::uint64_t> digests;
    double cpu_seconds = 0;
  };
  void checksum(std::span<const std::byte> payload, std::span<std::uint32_t> table, std::int64_t from,
                std::int64_t to, Worker& worker);

  std::int64_t payload_offset_, chunk_bytes_;
  std::vector<Placed> placed_;
  std::vector<Worker> workers_;  ///< one per thread
  double cpu_seconds_ = 0;
};

}  // namespace holdfast::checkpoint
