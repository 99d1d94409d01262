#pragma once
// SentencePiece models: training a small one reproducibly, and encoding text that arrives in pieces.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/tool/text_stream.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace holdfast::tool {

/// Trains a byte-fallback BPE model of `vocabulary` pieces in the manner of Llama 2 (identity normalisation,
/// single digits, <unk> 0, <s> 1, </s> 2, then the 256 bytes), without a dummy space at the start, and
/// returns the model file's bytes. The same text gives the same bytes: one thread, no sampling at random. At
/// most about 64 MiB of text, taken evenly, are looked at; `text` gives the pieces until it returns false.
/// Error (usage) when the text cannot fill the vocabulary, or the vocabulary cannot hold the text's
/// characters.
std::string train_tokenizer(int vocabulary, std::uint64_t text_bytes,
                            const std::function<bool(Piece&)>& text);

/// A loaded model.
class Tokenizer {
 public:
  /// From a model file's bytes; `name` is for messages. Error (usage) when they are not a SentencePiece
  /// model.
  Tokenizer(std::string_view model, const std::string& name);
  ~Tokenizer();

  int vocabulary() const;
  /// The token that begins a document: <s>, else </s>, else -1.
  int document_start() const { return document_start_; }
  int unknown() const;
  /// Tokens of `piece`, in the place of `tokens`: document_start() (if any) before a document, the line
  /// feed's tokens before a line. A document's tokens are those of its whole text at once when no piece of
  /// the model contains a line feed, as in all models with byte fallback.
  void encode(const Piece& piece, std::vector<std::int32_t>& tokens) const;
  /// The text of tokens; control tokens such as <s> give nothing.
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> model_;
  int document_start_ = -1;
  std::size_t dummy_ = 0;     ///< 1 when the model puts a space before every text
  std::vector<int> newline_;  ///< tokens of "\n", the dummy space included
};

}  // namespace holdfast::tool
