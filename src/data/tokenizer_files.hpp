#pragma once
// The files of a tokenizer as they lie beside a model. Token files know theirs by its hash.
#include <filesystem>
#include <vector>

namespace holdfast::data {

/// tokenizer.json and tokenizer.model, which are two forms of one, as far as `folder` has them. Nothing
/// where it is no folder.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& folder);

}  // namespace holdfast::data
