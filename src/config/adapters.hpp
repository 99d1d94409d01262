#pragma once
// The adapters that [lora] asks for, and what is remembered of them beside their weights.
#include <string>

#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

/// None for rank 0. Throws Error (usage): a target that no block has, twice the same, none at all, or numbers
/// out of range.
Adapters adapters_of(const Lora& lora);

/// The model of a run: its file's shape, and the adapters. Throws Error (usage).
ModelShape model_of(const RunConfig& config);

/// What adapters say of themselves where they lie: rank, alpha, dropout and targets; and what they sit
/// beside.
struct AdapterFacts {
  Lora lora;
  std::string base;         ///< path or name of the weights; "": drawn from the seed, or not known
  std::string base_digest;  ///< of those weights in fp32, checkpoint::state_digest(); "": not known
};

}  // namespace holdfast::config
