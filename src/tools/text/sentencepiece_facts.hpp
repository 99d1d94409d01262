#pragma once
// What a SentencePiece model file says that sentencepiece_processor.h does not tell. The format is
// sentencepiece_model.proto.
#include <optional>
#include <string_view>
#include <vector>

namespace holdfast::text {

struct SentencePieceFacts {
  bool bpe = false, byte_fallback = false;
  bool space_behind = false;       ///< treat_whitespace_as_suffix
  bool rewrites = false;           ///< normalises by a table
  std::vector<bool> user_defined;  ///< by piece
  bool dummy_prefix = true, drops_spaces = true, escapes_spaces = true;
};

/// What `model` does not say is as the format takes it for granted. Nothing where it is damaged, or has
/// rules that lead SentencePiece astray.
std::optional<SentencePieceFacts> sentencepiece_facts(std::string_view model);

}  // namespace holdfast::text
