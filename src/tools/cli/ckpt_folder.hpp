#pragma once
// Models and adapters as folders that transformers and peft load: a description, weights, and a tokenizer's
// files.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/exchange/export.hpp"
#include "src/config/adapters.hpp"
#include "src/config/model_shape.hpp"

namespace holdfast::tool {

struct FolderOptions {
  std::int64_t shard_bytes = 0;  ///< of each file of weights, at most
  /// Folder whose tokenizer and token ids go along, or a SentencePiece model as data prepare trains it;
  /// empty: none does.
  std::filesystem::path tokenizer;
  /// Folder of the model that this one was made of: says how texts begin and end where `tokenizer` does not.
  std::filesystem::path made_of;
};

struct ExportedFolder {
  std::int64_t bytes = 0;  ///< of the files of weights
  int files = 0;           ///< of weights
  std::string dtype;       ///< as config.json says: "bfloat16"
};

/// config.json and weights; with a tokenizer all that transformers needs to use it and to end texts. `target`
/// is new, or an empty folder; it gets its name when all in it is whole and durable. `types`: one per tensor
/// of the model. Throws as write_whole_files() does, and leaves nothing behind.
ExportedFolder export_folder(checkpoint::TensorSource& source, const config::ModelShape& shape,
                             std::span<const checkpoint::Element> types, const std::filesystem::path& target,
                             const FolderOptions& options);

/// The same for adapters, as peft lays them out: adapter_config.json and adapter_model.safetensors.
ExportedFolder export_adapters(checkpoint::TensorSource& source, const config::AdapterFacts& facts,
                               std::span<const checkpoint::Element> types,
                               const std::filesystem::path& target, const std::filesystem::path& tokenizer);

}  // namespace holdfast::tool
