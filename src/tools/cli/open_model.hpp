#pragma once
// The model of generate and eval, from whatever holds it.
#include <filesystem>
#include <string>

#include "src/tools/infer/parameters.hpp"
#include "src/weights/merged_files.hpp"

namespace holdfast::tool {

struct ModelOrder {
  std::filesystem::path path, adapters, base;
};

/// "fp32" or "bf16". Throws Error (usage).
tensor::DType dtype_of(const std::string& name);

/// What was named itself: the base, or its adapters where these were.
const std::filesystem::path& path_of(const weights::MergedFiles& files, const ModelOrder& order);

/// All weights, adapters added to them, read and checked.
infer::Parameters load_merged(weights::MergedFiles& files, tensor::DType type);
/// Weights and adapters as they are trained, beside each other: the arithmetic of the run.
infer::Parameters load_apart(weights::MergedFiles& files, tensor::DType type);

}  // namespace holdfast::tool
