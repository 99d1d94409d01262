#pragma once
// config.json of a Hugging Face model folder, and the model shape that it describes. The keys and their
// defaults are those of transformers' configuration_NAME.py, one row for each class (hf_family.hpp), in the
// spelling of version 4 (rope_theta, rope_scaling, torch_dtype) and of version 5 (rope_parameters, dtype).
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "src/config/model_shape.hpp"

namespace holdfast::config {

/// The ids that end and begin texts; they belong to the tokenizer, and generation looks for them here.
struct HfTokenIds {
  std::string bos = "null", eos = "null", pad = "null";  ///< as JSON: a number, a list of them, or null
};

struct HfConfig {
  ModelShape shape;
  std::string dtype;  ///< "float32", "bfloat16", "float16" or what else it says; "": nothing
  HfTokenIds ids;
};

/// Throws Error (usage) that names the first thing that we would not compute as transformers does; keys that
/// change nothing of the arithmetic are not looked at. `path` is for messages, `name` becomes the shape's.
HfConfig parse_hf_config(std::string_view json, const std::string& path, const std::string& name);

/// The text of a config.json that version 4 and 5 read, of the first class that computes the shape. Throws
/// Error (usage) where none does. `dtype`: "float32", "bfloat16" or "float16".
std::string hf_config_text(const ModelShape& shape, std::string_view dtype, const HfTokenIds& ids = {});

/// The config.json that `path` is or, as a folder, holds; nothing when it is neither.
std::optional<std::filesystem::path> find_hf_config(const std::filesystem::path& path);
/// Reads it. The shape is called as the folder is.
HfConfig load_hf_config(const std::filesystem::path& config_json);

}  // namespace holdfast::config
