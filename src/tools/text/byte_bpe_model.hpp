#pragma once
// What a Hugging Face tokenizer.json says, read and checked: a vocabulary of bytes, merges, and how text is
// cut before them. Format: https://github.com/huggingface/tokenizers, as its releases 0.13 to 0.23 write it.
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/tools/text/beside.hpp"
#include "src/tools/text/merge_table.hpp"
#include "src/tools/text/pattern.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::text {

/// A token that is found in the text before anything else is cut.
struct AddedToken {
  Token id = 0;
  std::string content;      ///< UTF-8, not empty
  bool special = false;     ///< as text it is text
  bool normalized = false;  ///< looked for in the normalised text
};

/// One step of the pre-tokenizer.
struct Cut {
  Pattern pattern;
  bool keep_matches = true, keep_others = true;
};

struct ByteBpeModel {
  std::vector<std::string> bytes;                ///< by token; of added tokens their content
  std::unordered_map<std::string, Token> words;  ///< bytes -> token; without what is only an added token
  std::unordered_map<std::string, Token> odd;    ///< pieces that spell no bytes -> token
  std::array<Token, 256> byte_tokens = {};       ///< -1: cannot stand in UTF-8, and the vocabulary has none
  std::vector<MergeRule> merges;
  bool ignore_merges = false;  ///< a word that is in the vocabulary is its token
  bool nfc = false;
  bool prefix_space = false;     ///< a space goes before a text that has none
  bool only_byte_level = false;  ///< the pre-tokenizer is ByteLevel and nothing else
  std::vector<Cut> cuts;         ///< one after the other, each on what the one before it left
  std::vector<AddedToken> added;
  std::optional<std::string> begins;  ///< what the post-processor puts before a text
};

/// `json`: the bytes of tokenizer.json; `name` is for messages. Error (usage) names what is damaged or not
/// supported.
ByteBpeModel read_byte_bpe(std::string_view json, const std::string& name);

/// Adds what the files beside it declare, as transformers does: a token that the vocabulary has becomes an
/// added one, any other is the next one. Error (usage) where a file gives it another number, or contradicts
/// the model.
void add_declared(ByteBpeModel& model, const Beside& beside, const std::string& name);

/// What the tokens of documents are called: the first that the vocabulary has counts.
struct DocumentTokens {
  std::vector<std::string> start, end;
};
/// From the files beside a tokenizer's, what the post-processor puts first (`begins`), and what models
/// commonly use. A document begins with what transformers puts before a text. An instruction model's
/// eos_token ends a turn, not a document; so the names that only end documents come first.
DocumentTokens document_tokens(const Beside& beside, const std::optional<std::string>& begins);

}  // namespace holdfast::text
