#pragma once
// What the run that a checkpoint belongs to says of it.
#include <filesystem>
#include <optional>

#include "src/config/run_config.hpp"

namespace holdfast::tool {

/// The settings of the run, if the checkpoint lies in one.
std::optional<config::RunConfig> run_config_of(const std::filesystem::path& checkpoint);

/// The tokenizer that made the run's tokens, by the card beside them (corpus/card.hpp): a file or a folder.
/// "" when no card says it, or it is not there any more or has changed.
std::filesystem::path tokenizer_of(const config::RunConfig& run);
/// The same of the run that the checkpoint lies in, as a folder with the files of a tokenizer, or as a
/// SentencePiece model; "" also where the settings cannot be read.
std::filesystem::path tokenizer_of_tokens(const std::filesystem::path& checkpoint);

}  // namespace holdfast::tool
