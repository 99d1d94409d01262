#pragma once
// SentencePiece models: Llama 2's tokenizer.model, or one trained here.
#include <memory>
#include <string>

#include "src/tools/text/added_tokens.hpp"
#include "src/tools/text/sentencepiece_bpe.hpp"
#include "src/tools/text/sentencepiece_facts.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace holdfast::text {

/// Gives the ids of SentencePiece's own EncodeAsIds of the whole text. Pieces that the user defined are
/// parsed everywhere, as it does; control pieces (<s>, </s>) where they lie in a parsed range. What stands
/// between two of those is a text of its own, with the model's dummy space before it if it has one.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// From a model file's bytes; `name` is for messages. Error (usage) when they are not a SentencePiece
  /// model.
  SentencePieceTokenizer(std::string_view model, const std::string& name);
  ~SentencePieceTokenizer() override;

  int vocabulary() const override { return static_cast<int>(bytes_.size()); }
  data::Hash128 identity() const override { return identity_; }
  void encode(std::string_view text, std::vector<Token>& out, Specials specials) const override;
  void encode_template(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>> parsed,
                       std::vector<Token>& out) const override;
  void encode_template_at(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>> parsed,
                          std::vector<Token>& out, std::vector<std::size_t>& begins) const override;
  /// Without the dummy space before the first token.
  std::string decode(std::span<const Token> tokens, bool specials) const override;
  std::optional<Token> find(std::string_view piece) const override;
  std::optional<Token> document_start() const override;
  std::optional<Token> document_end() const override;
  std::optional<Token> unknown() const override;

 private:
  enum class Kind : std::uint8_t { text, byte, control, unknown };

  std::unique_ptr<SentencePieceBpe> fast_bpe() const;
  void split(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>> parsed,
             std::vector<Token>& out, std::vector<std::size_t>* begins) const;
  void encode_part(std::string_view text, std::size_t base, std::vector<Token>& out,
                   std::vector<std::size_t>* begins) const;

  SentencePieceFacts facts_;  ///< read first: what they refuse is not given to the library
  std::unique_ptr<sentencepiece::SentencePieceProcessor> model_;
  std::unique_ptr<SentencePieceBpe> bpe_;  ///< does the same, but faster; null where it cannot
  AddedTokens control_;
  std::vector<std::string> bytes_;  ///< by token, spaces as spaces; of control pieces their name
  std::vector<Kind> kinds_;         ///< by token
  data::Hash128 identity_ = {};
};

}  // namespace holdfast::text
