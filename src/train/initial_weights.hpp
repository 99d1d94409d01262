#pragma once
// What a run without a checkpoint begins with, from files ([model] weights): the weights of a Hugging Face
// folder, of a safetensors file, or of a checkpoint or another run of ours. With adapters it is what they are
// trained on, and every start reads it.
#include <optional>
#include <span>
#include <string>

#include "checkpoint/manifest.hpp"
#include "checkpoint/safetensors_source.hpp"
#include "checkpoint/state.hpp"
#include "src/comm/communicator.hpp"
#include "src/train/setup.hpp"
#include "src/train/state_views.hpp"

namespace holdfast::train {

class WeightFiles {
 public:
  /// Collective: rank 0 looks, before anybody reads. Throws Error on every rank: usage when the files are not
  /// usable or not of this model.
  WeightFiles(const Setup& setup, comm::Communicator& world);

  /// Fills the pieces of `weights`, tensors "model/NAME" as fp32, with at most 64 MiB of memory of its own.
  /// Returns the bytes read. Throws Error when they cannot be read or are damaged.
  std::int64_t read(const checkpoint::State& weights) const;
  /// Where the source says what its tensors are: that these digests, of whole tensors, are theirs. Throws
  /// Error (runtime).
  void check(std::span<const checkpoint::LogicalTensor> tensors,
             std::span<const std::uint64_t> digests) const;

 private:
  std::string path_;
  std::optional<checkpoint::Manifest> manifest_;           ///< of a checkpoint
  std::optional<checkpoint::safetensors::Source> source_;  ///< else
};

/// Collective. Fills the pieces of `views.held` that belong to the model; moments are left alone. Every rank
/// reads the ranges of its own pieces and nothing else, all at once. Throws Error on every rank.
void read_initial_weights(const Setup& setup, const StateViews& views, comm::Communicator& world);

}  // namespace holdfast::train
