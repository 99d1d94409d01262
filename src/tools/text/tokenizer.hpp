#pragma once
// From text to tokens and back, whichever library made the vocabulary.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/data/token_file.hpp"

namespace holdfast::text {

using Token = std::int32_t;

/// What becomes of text that reads like a special token ("<|eot_id|>", "</s>").
enum class Specials {
  as_text,  ///< it is text like any other: what documents of unknown origin get
  parsed,   ///< it is the token: what a chat template's own words get
};

/// Thread-safe: encode() and decode() may be called from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Every token is in [0, vocabulary()).
  virtual int vocabulary() const = 0;
  /// Hash of the file that it was read from: token files name it, so that they are not mixed up.
  virtual data::Hash128 identity() const = 0;

  /// Appends the tokens of `text`, which is valid UTF-8, to `out`; neither begin nor end token is added.
  /// Throws Error (usage) where a damaged model cannot spell it.
  virtual void encode(std::string_view text, std::vector<Token>& out,
                      Specials specials = Specials::as_text) const = 0;
  /// The same, with the special tokens of the ranges [first, end) of `text` parsed and of nothing else; they
  /// are sorted and do not overlap. The text is cut into tokens as a whole, so that a template's words and
  /// what people said meet as they do in training elsewhere.
  virtual void encode_template(std::string_view text,
                               std::span<const std::pair<std::size_t, std::size_t>> parsed,
                               std::vector<Token>& out) const = 0;
  /// For each token of encode_template()'s output the byte of `text` at which it begins, where asked for.
  virtual void encode_template_at(std::string_view text,
                                  std::span<const std::pair<std::size_t, std::size_t>> parsed,
                                  std::vector<Token>& out, std::vector<std::size_t>& begins) const = 0;
  /// The bytes of tokens, which need not be whole characters; special tokens give nothing unless `specials`.
  virtual std::string decode(std::span<const Token> tokens, bool specials = false) const = 0;

  /// The token of a special or ordinary piece as the vocabulary spells it, or nothing.
  virtual std::optional<Token> find(std::string_view piece) const = 0;
  /// What begins a document (<s>, <|begin_of_text|>), what ends one (</s>, <|end_of_text|>, <|endoftext|>);
  /// nothing where the vocabulary has none.
  virtual std::optional<Token> document_start() const = 0;
  virtual std::optional<Token> document_end() const = 0;
  /// The token of what cannot be spelled, or nothing where everything can.
  virtual std::optional<Token> unknown() const = 0;
};

/// `path`: a SentencePiece model (*.model), a Hugging Face tokenizer.json, or a folder with one of them
/// (tokenizer.json first, then tokenizer.model, also together with a tokenizer.json of Llama's kind; else the
/// only NAME.model). What the files beside it say is a part of it (beside.hpp). Throws Error (usage) when it
/// is none, when its files contradict each other, or when it uses what is not supported; the error names it.
std::unique_ptr<Tokenizer> open_tokenizer(const std::filesystem::path& path);

}  // namespace holdfast::text
