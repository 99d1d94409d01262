#pragma once
// model.safetensors.index.json: which file of a folder holds which tensor
// (huggingface.co/docs/hub/models-the-safetensors-format, "Sharded"). Text only.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace holdfast::checkpoint::safetensors {

inline constexpr const char* single_name = "model.safetensors";
inline constexpr const char* index_name = "model.safetensors.index.json";
inline constexpr std::int64_t largest_index = 64 << 20;

/// Tensor to file.
using WeightMap = std::map<std::string, std::string>;

/// {"metadata": ..., "weight_map": {tensor: file}}; the files lie beside the index: a name with a folder in
/// it is refused. Throws Error (usage), where `path` is called unusable.
WeightMap parse_index(std::string_view json, const std::string& path);
/// `bytes`: of all tensors.
std::string index_text(const WeightMap& files, std::int64_t bytes);
/// model-00002-of-00003.safetensors; `number` counts from 1.
std::string part_name(int number, int parts);

}  // namespace holdfast::checkpoint::safetensors
