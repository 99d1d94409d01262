#pragma once
// A checkpoint's model as a folder that transformers loads: config.json, weights, and a tokenizer's files.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/export.hpp"

namespace holdfast::tool {

struct FolderOptions {
  std::int64_t shard_bytes = 0;     ///< of each file of weights, at most
  std::filesystem::path tokenizer;  ///< folder whose tokenizer and token ids go along; empty: none does
};

struct ExportedFolder {
  std::int64_t bytes = 0;  ///< of the files of weights
  int files = 0;           ///< of weights
  std::string dtype;       ///< as config.json says: "bfloat16"
};

/// `target` is new, or an empty folder; it gets its name when all in it is whole and durable. `types`: one
/// per tensor of the model. Throws Error and Damaged, as write_whole_files() does, and leaves nothing behind.
ExportedFolder export_folder(const std::filesystem::path& step_dir, const checkpoint::Manifest& manifest,
                             std::span<const checkpoint::Element> types, const std::filesystem::path& target,
                             const FolderOptions& options);

}  // namespace holdfast::tool
