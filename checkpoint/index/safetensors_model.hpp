#pragma once
// Whether safetensors files are the weights of a model, and what is remembered of where weights came from.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/index/element.hpp"
#include "checkpoint/index/safetensors_contents.hpp"
#include "checkpoint/index/state.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint::safetensors {

inline constexpr const char* head_name = "lm_head.weight";

/// Everything that `model` has (Hugging Face names, without a family), and nothing that it does not know.
/// `tied`: the head reads the embedding; lm_head.weight may be there, and require_tied_head() compares it.
/// Returns the tensors that the files have and the model computes itself. Throws Error (usage) that names the
/// first tensor that is missing, unknown, or of another shape or type.
std::vector<std::string> require_model(const Contents& files, std::span<const LogicalTensor> model,
                                       bool tied);

/// What is said of files that hold another model: Error (usage).
Error not_of_model(const Contents& files, const std::string& why);

/// Facts::data_identity of imported weights: "imported IDENTITY TYPE", or a type for each tensor of `model`.
std::string imported_identity(const Contents& files, std::span<const LogicalTensor> model);
/// What it says of the types of `count` tensors; nothing when it is not of imported weights, or does not say.
std::optional<std::vector<Element>> imported_types(const Facts& facts, std::size_t count);

}  // namespace holdfast::checkpoint::safetensors
