#pragma once
// What a config.json says of positions: rotary embedding, layers without it, and sliding windows.
#include <nlohmann/json_fwd.hpp>

#include "src/config/foreign_json.hpp"
#include "src/config/hf_family.hpp"
#include "src/config/model_shape.hpp"

namespace holdfast::config {

/// Once the sizes are read. Throws Error (usage): a key says what is not computed here.
void read_positions(const ForeignJson& in, const HfFamily& family, ModelShape& shape);
/// The keys that both versions of transformers read.
void write_positions(nlohmann::json& json, const HfFamily& family, const ModelShape& shape);

}  // namespace holdfast::config
