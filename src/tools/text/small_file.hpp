#pragma once
// Files of tokenizers, which are read as a whole.
#include <filesystem>
#include <string>

namespace holdfast::text {

/// The bytes of a regular file of at most 128 MiB; the largest tokenizers are a third of that. Error (usage)
/// when it is none, or larger.
std::string read_small_file(const std::filesystem::path& path);

}  // namespace holdfast::text
