#pragma once
// A SentencePiece model as the files with which transformers uses it, without the library sentencepiece.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "src/tools/text/tokenizer.hpp"

namespace holdfast::text {

struct HfTokenizerFiles {
  std::string tokenizer, config;  ///< texts of tokenizer.json and tokenizer_config.json
  std::optional<Token> begins, ends;
};

/// Of BPE models with byte fallback that rewrite nothing, as Llama 2's and those that are trained here; of
/// others nothing. The tokens of a text are those of SentencePiece, with the one before them that begins
/// texts. `max_tokens`: of a sequence, if known. Throws Error (usage) when `model` is no SentencePiece model;
/// `name` is for messages.
std::optional<HfTokenizerFiles> hf_files_of_sentencepiece(std::string_view model, const std::string& name,
                                                          std::optional<int> max_tokens);

/// `path` as a file, or the only one in it as a folder, that is called NAME.model and no tokenizer.model;
/// nothing else, also where a folder has a tokenizer of Hugging Face's names.
std::optional<std::filesystem::path> find_own_model(const std::filesystem::path& path);

}  // namespace holdfast::text
