#pragma once
// adapter_config.json of a PEFT folder. The keys are those of peft's LoraConfig (peft/tuners/lora/config.py).
#include <filesystem>
#include <string>
#include <string_view>

#include "src/config/adapters.hpp"

namespace holdfast::config {

/// Throws Error (usage) that names the first thing that we would not compute as peft does: DoRA, ranks or
/// alphas of their own for some layers, biases, modules that are trained whole, patterns as target_modules.
/// `path` is for messages. AdapterFacts::base is base_model_name_or_path.
AdapterFacts parse_peft_config(std::string_view json, const std::string& path);

std::string peft_config_text(const AdapterFacts& facts);

}  // namespace holdfast::config
