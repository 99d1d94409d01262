#pragma once
// The adapters that [lora] asks for.
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

/// None for rank 0. Throws Error (usage): a target that no block has, twice the same, none at all, or numbers
/// out of range.
Adapters adapters_of(const Lora& lora);

/// The model of a run: its file's shape, and the adapters. Throws Error (usage).
ModelShape model_of(const RunConfig& config);

}  // namespace holdfast::config
