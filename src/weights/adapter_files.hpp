#pragma once
// Low-rank adapters of a model, wherever they lie: a folder as PEFT writes it (adapter_config.json,
// adapter_model.safetensors), or a checkpoint or run of ours that trained adapters.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/exchange/safetensors_source.hpp"
#include "checkpoint/index/lease.hpp"
#include "checkpoint/index/manifest.hpp"
#include "checkpoint/index/state.hpp"
#include "src/config/adapters.hpp"

namespace holdfast::weights {

namespace fs = std::filesystem;

/// Of a PEFT folder. Tensors are called "base_model.model." and then as ours.
inline constexpr const char* peft_config_name = "adapter_config.json";
inline constexpr const char* peft_weights_name = "adapter_model.safetensors";
inline constexpr std::string_view peft_prefix = "base_model.model.";
/// Where adapter_model.safetensors of ours says which base it belongs to, in its __metadata__.
inline constexpr const char* peft_base_digest = "holdfast_base_digest";

/// Whether PEFT could have written this folder.
bool is_peft_folder(const fs::path& path);

class AdapterFiles {
 public:
  /// Throws Error (usage) when there are no adapters at `path`, or they are of a kind that is not computed
  /// here.
  explicit AdapterFiles(const fs::path& path, const std::string& asked_by = {});

  /// What was opened: of a run the checkpoint. Opening it again opens the same.
  const fs::path& path() const { return path_; }
  const config::AdapterFacts& facts() const { return facts_; }
  const checkpoint::Manifest* manifest() const { return manifest_ ? &*manifest_ : nullptr; }

  /// That these are adapters for `base`, all of them and nothing else. Returns `base` with them. Throws Error
  /// (usage) that names the first tensor which is missing, unknown or of another shape.
  config::ModelShape require(config::ModelShape base) const;

  /// Fills the pieces of `adapters`, tensors "model/NAME" as fp32. Throws Error.
  std::int64_t read(const checkpoint::State& adapters) const;

 private:
  void open_peft();
  void open_checkpoint(const std::string& asked_by);

  fs::path path_;
  config::AdapterFacts facts_;
  std::vector<checkpoint::LogicalTensor> tensors_;         ///< "model/NAME", as they are in the files
  std::optional<checkpoint::Lease> lease_;                 ///< on a checkpoint of a run
  std::optional<checkpoint::Manifest> manifest_;           ///< of a checkpoint
  std::optional<checkpoint::safetensors::Source> source_;  ///< else
};

}  // namespace holdfast::weights
