#include "checkpoint/exchange/checkpoint_tensors.hpp"

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"

namespace holdfast::checkpoint {

CheckpointTensors::CheckpointTensors(fs::path step_dir, const Manifest& manifest)
    : step_dir_(step_dir),
      manifest_(manifest),
      reader_(std::move(step_dir), manifest),
      digests_(manifest.tensors.size()) {}

void CheckpointTensors::read(const PieceView& piece, std::span<std::byte> room) {
  reader_.read(piece.tensor, piece.first, piece.count, static_cast<std::byte*>(piece.data), room);
  const auto t = as_size(piece.tensor);
  digests_[t] += digest_part(static_cast<std::uint64_t>(piece.first), piece.data, manifest_.tensors[t].type,
                             piece.count);
}

void CheckpointTensors::check(std::span<const int> tensors) const {
  for (const int tensor : tensors) {
    const auto t = as_size(tensor);
    if (digests_.at(t) != manifest_.digests[t])
      throw Damaged("checkpoint " + step_dir_.string() + " is damaged",
                    manifest_.tensors[t].name + " has digest " + digest_text(digests_[t]) +
                        ", the manifest says " + digest_text(manifest_.digests[t]));
  }
}

}  // namespace holdfast::checkpoint
