#pragma once
// Which tokens begin and end a model's texts, as the files beside it say.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/tools/text/tokenizer.hpp"

namespace holdfast::infer {

struct TokenIds {
  std::vector<std::int32_t> begins, ends;  ///< empty: nothing is said
  std::filesystem::path said_by;           ///< the file
};

/// bos_token_id and eos_token_id (a number, a list of them, or null) of generation_config.json, where it says
/// how texts end, else of config.json. Nothing for a folder without them. Throws Error (usage) when such a
/// file is no JSON or its ids are none.
TokenIds token_ids_of(const std::filesystem::path& folder);

/// What ends a text: what the files say, else the tokenizer's own end.
std::vector<std::int32_t> ends_of(const TokenIds& ids, const text::Tokenizer& tokenizer);

/// Where a model's files and its tokenizer name different tokens: a sentence, or "".
std::string disagreement(const TokenIds& ids, const text::Tokenizer& tokenizer);

}  // namespace holdfast::infer
