#pragma once
// A checkpoint as a source of tensors for files of other formats: every block that is read is checked, and in
// the end every tensor's digest too.
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/io/tensor_source.hpp"
#include "checkpoint/shards/piece_reader.hpp"

namespace holdfast::checkpoint {

class CheckpointTensors : public TensorSource {
 public:
  /// `manifest` outlives the object.
  CheckpointTensors(fs::path step_dir, const Manifest& manifest);

  std::span<const LogicalTensor> tensors() const override { return manifest_.tensors; }
  std::int64_t room_bytes() const override { return reader_.room_bytes(); }
  void read(const PieceView& piece, std::span<std::byte> room) override;
  void check(std::span<const int> tensors) const override;

 private:
  const fs::path step_dir_;
  const Manifest& manifest_;
  PieceReader reader_;
  std::vector<std::atomic<std::uint64_t>> digests_;  ///< one per tensor, of what was read
};

}  // namespace holdfast::checkpoint
