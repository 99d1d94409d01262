#pragma once
// Low-rank adapters of a model, wherever they lie: a folder as PEFT writes it (adapter_config.json,
// adapter_model.safetensors), or a checkpoint or run of ours that trained adapters.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/exchange/safetensors_source.hpp"
#include "checkpoint/index/lease.hpp"
#include "checkpoint/index/manifest.hpp"
#include "checkpoint/index/state.hpp"
#include "src/weights/contents.hpp"

namespace holdfast::weights {

namespace fs = std::filesystem;

class AdapterFiles {
 public:
  /// Throws Error (usage) when there are no adapters at `path`, or they are of a kind that is not computed
  /// here.
  explicit AdapterFiles(const fs::path& path, const std::string& asked_by = {});

  /// What was opened: of a run the checkpoint. Opening it again opens the same.
  const fs::path& path() const { return contents_.path; }
  const AdapterContents& contents() const { return contents_; }
  const config::AdapterFacts& facts() const { return contents_.facts; }
  const checkpoint::Manifest* manifest() const { return manifest_ ? &*manifest_ : nullptr; }

  /// As require_adapters() does.
  config::ModelShape require(config::ModelShape base) const {
    return require_adapters(contents_, std::move(base));
  }

  /// Fills the pieces of `adapters`, tensors "model/NAME" as fp32. Throws Error.
  std::int64_t read(const checkpoint::State& adapters) const;

 private:
  AdapterContents contents_;
  std::optional<checkpoint::Lease> lease_;                 ///< on a checkpoint of a run
  std::optional<checkpoint::Manifest> manifest_;           ///< of a checkpoint
  std::optional<checkpoint::safetensors::Source> source_;  ///< else
};

}  // namespace holdfast::weights
