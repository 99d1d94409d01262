#pragma once
// The weights of a model, wherever they lie: a Hugging Face folder, a safetensors file, a checkpoint, or a
// run of ours.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/exchange/safetensors_source.hpp"
#include "checkpoint/index/lease.hpp"
#include "checkpoint/index/manifest.hpp"
#include "checkpoint/index/state.hpp"
#include "checkpoint/shards/piece_reader.hpp"
#include "src/config/model_shape.hpp"
#include "src/weights/contents.hpp"

namespace holdfast::weights {

namespace fs = std::filesystem;

class ModelFiles {
 public:
  /// `path`: a folder with config.json and safetensors, a safetensors file or its index, a checkpoint, a
  /// folder of checkpoints or a run: of the latter two the newest sound checkpoint. `asked_by` is for
  /// messages: what named the path. Throws Error: usage when there are no weights, runtime when none of them
  /// is sound.
  explicit ModelFiles(const fs::path& path, const std::string& asked_by = {});

  /// What was opened: of a run the checkpoint. Opening it again opens the same.
  const fs::path& path() const { return path_; }
  /// What the files say of the model; a safetensors file alone says nothing. A checkpoint of adapters holds
  /// them and nothing else, and its shape has them.
  const std::optional<config::ModelShape>& shape() const { return shape_; }
  /// Of a checkpoint.
  const checkpoint::Manifest* manifest() const { return manifest_.get(); }
  /// Of safetensors files.
  const checkpoint::safetensors::Source* source() const { return source_ ? &*source_ : nullptr; }

  /// As require_weights() does, and that the head of a tied model is its embedding.
  std::vector<std::string> require(const config::ModelShape& shape) const;
  /// One line of what they are.
  std::string description(const config::ModelShape& shape) const;

  /// Fills the pieces of `weights`, tensors "model/NAME" as fp32, with at most 64 MiB of memory of its own.
  /// Returns the bytes read. Throws Error when they cannot be read or are damaged.
  std::int64_t read(const checkpoint::State& weights) const;
  /// Elements [first, first + to.size()) of one of them: for many small reads, by any number of threads at
  /// once.
  void read(const std::string& tensor, std::int64_t first, std::span<float> to) const;
  /// Where the files say what their tensors are: that these digests, of whole tensors, are theirs. Throws
  /// Error (runtime).
  void check(std::span<const checkpoint::LogicalTensor> tensors,
             std::span<const std::uint64_t> digests) const;

 private:
  fs::path path_;
  std::optional<config::ModelShape> shape_;
  std::optional<checkpoint::Lease> lease_;                 ///< on a checkpoint of a run
  std::unique_ptr<const checkpoint::Manifest> manifest_;   ///< of a checkpoint
  std::unique_ptr<checkpoint::PieceReader> pieces_;        ///< of it
  std::optional<checkpoint::safetensors::Source> source_;  ///< else
};

}  // namespace holdfast::weights
