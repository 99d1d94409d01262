#pragma once
// Ranges of a checkpoint's tensors in any order, by any number of threads at once. What load() does for all
// pieces of a rank at once, for somebody who goes through a checkpoint and never holds much of it.
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "checkpoint/shards/load_plan.hpp"
#include "checkpoint/shards/shard_reader.hpp"

namespace holdfast::checkpoint {

class PieceReader {
 public:
  /// `manifest` outlives the reader.
  PieceReader(fs::path step_dir, const Manifest& manifest);

  /// Memory that one read() at a time needs: aligned, whole pages.
  std::int64_t room_bytes() const { return room_bytes_; }
  /// Elements [first, first + count) of tensor number `tensor` of the manifest, in its type. Each block is
  /// checked before a byte of it is used. Throws Damaged; Error when a file may not be read.
  void read(int tensor, std::int64_t first, std::int64_t count, std::byte* to, std::span<std::byte> room);

 private:
  std::shared_ptr<const ShardReader> open(std::size_t shard);

  /// A shard stays open, with its block table, until another needs its place.
  struct Place {
    std::mutex lock;  ///< while it opens, others that need the same shard wait here
    std::size_t shard = 0;
    std::shared_ptr<const ShardReader> reader;
  };

  const fs::path step_dir_;
  const Manifest& manifest_;
  const std::vector<std::vector<Stored>> stored_;
  std::int64_t room_bytes_ = 0;
  std::vector<Place> places_;
};

}  // namespace holdfast::checkpoint
