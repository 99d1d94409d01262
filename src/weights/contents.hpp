#pragma once
// What files of weights and adapters hold, without their values, and whether a model can begin with them:
// ranks ask before they read, and `submit` before them, in the same words.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index/manifest.hpp"
#include "checkpoint/index/safetensors_contents.hpp"
#include "checkpoint/index/state.hpp"
#include "src/config/adapters.hpp"
#include "src/config/model_shape.hpp"

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

/// Tensors of a model as a checkpoint calls them, "model/NAME", fp32.
std::vector<checkpoint::LogicalTensor> tensors_of_model(const std::vector<config::TensorSpec>& specs);

/// That the tensors are those of `shape` without adapters. Returns those that nobody needs. Throws Error
/// (usage) that names the first which is missing, unknown or of another shape or type.
std::vector<std::string> require_weights(const checkpoint::safetensors::Contents& files,
                                         const config::ModelShape& shape);
/// The same of a checkpoint, in which nothing is superfluous.
void require_weights(const fs::path& path, const checkpoint::Manifest& manifest,
                     const config::ModelShape& shape);

struct AdapterContents {
  fs::path path;  ///< of a run the checkpoint
  config::AdapterFacts facts;
  std::vector<checkpoint::LogicalTensor> tensors;  ///< "model/NAME", as they are in the files
};
/// Of a PEFT folder. Throws Error (usage): they are of a kind that is not computed here.
AdapterContents peft_contents(const fs::path& path);
/// Of a checkpoint. Throws Error (usage) when it holds a whole model.
AdapterContents contents_of(const fs::path& path, const checkpoint::Manifest& manifest);
/// What is said where there are neither: Error (usage).
Error no_adapters(const fs::path& path, const std::string& asked_by);

/// That these are adapters for `base`, all of them and nothing else. Returns `base` with them. Throws Error
/// (usage) that names the first tensor which is missing, unknown or of another shape.
config::ModelShape require_adapters(const AdapterContents& adapters, config::ModelShape base);
/// That they are of the kind that `lora` trains. Throws Error (usage).
void require_kind(const AdapterContents& adapters, const config::ModelShape& shape, const config::Lora& lora);

/// What ranks would find at `path`, ModelFiles and AdapterFiles, as far as it can be told without values and
/// without a lease. Throws Error as they do.
void look_at_weights(const fs::path& path, const std::string& asked_by, const config::ModelShape& shape);
void look_at_adapters(const fs::path& path, const std::string& asked_by, const config::ModelShape& shape,
                      const config::Lora& lora);

}  // namespace holdfast::weights
