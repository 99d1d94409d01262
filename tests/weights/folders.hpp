#pragma once
// Small folders as transformers and peft write them, with values that are functions of their place.
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/index/safetensors.hpp"
#include "src/base/digest.hpp"
#include "src/config/hf_config.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/peft_config.hpp"
#include "src/weights/adapter_files.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::weights::testing {

inline config::ModelShape small_shape() {
  config::ModelShape shape;
  shape.vocabulary = 12, shape.width = 8, shape.layers = 2, shape.heads = 2, shape.kv_heads = 1,
  shape.ffn = 6;
  shape.max_sequence = 16;
  return shape;
}

inline config::AdapterFacts small_adapters() {
  config::AdapterFacts facts;
  facts.lora.rank = 3;
  facts.lora.alpha = 5;
  facts.lora.targets = {"q_proj", "v_proj", "down_proj"};
  return facts;
}

/// Element `index` of a tensor: in [-1, 1), no two alike.
inline float value_at(const std::string& tensor, std::int64_t index) {
  const std::uint64_t mixed =
      mix64(hash_name(tensor.data(), tensor.size()) + static_cast<std::uint64_t>(index));
  return static_cast<float>(static_cast<std::int64_t>(mixed >> 40) - (1 << 23)) / (1 << 23);
}

/// A safetensors file of `specs`, names with `prefix`, values by their names without.
inline std::string file_of(const std::vector<config::TensorSpec>& specs, const std::string& prefix = {},
                           const std::map<std::string, std::string>& metadata = {}) {
  std::vector<checkpoint::safetensors::Tensor> tensors;
  std::vector<float> values;
  for (const config::TensorSpec& spec : specs) {
    const bool vector = spec.kind == config::TensorKind::gain;
    tensors.push_back({prefix + spec.name, "F32",
                       vector ? std::vector{spec.elements()} : std::vector{spec.rows, spec.cols}, 0,
                       spec.elements() * 4});
    for (std::int64_t i = 0; i < spec.elements(); ++i) values.push_back(value_at(spec.name, i));
  }
  std::string text = checkpoint::safetensors::header_text(tensors, metadata);
  text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return text;
}

inline std::filesystem::path write_model(const holdfast::test::Scratch& scratch, const std::string& name,
                                         const config::ModelShape& shape) {
  scratch.write(name + "/config.json", config::hf_config_text(shape, "float32"));
  scratch.write(name + "/model.safetensors", file_of(config::base_tensors_of(shape)));
  return scratch.path() / name;
}

/// Adapters for `shape`.
inline std::filesystem::path write_peft(const holdfast::test::Scratch& scratch, const std::string& name,
                                        config::ModelShape shape, const config::AdapterFacts& facts) {
  shape.adapters = config::adapters_of(facts.lora);
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (!facts.base_digest.empty()) metadata[peft_base_digest] = facts.base_digest;
  scratch.write(name + "/" + peft_config_name, config::peft_config_text(facts));
  scratch.write(name + "/" + peft_weights_name,
                file_of(config::tensors_of(shape), std::string(peft_prefix), metadata));
  return scratch.path() / name;
}

}  // namespace holdfast::weights::testing
