#pragma once
// SentencePiece models: Llama 2's tokenizer.model, or one trained here.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/tools/text/added_tokens.hpp"
#include "src/tools/text/beside.hpp"
#include "src/tools/text/sentencepiece_bpe.hpp"
#include "src/tools/text/sentencepiece_facts.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace holdfast::text {

/// Before which texts a space goes, if they do not begin with one.
enum class PrefixSpace {
  by_model,  ///< before each text between two special tokens, and also before spaces, if the model has it so:
             ///< SentencePiece's own rule, and transformers' "legacy" one
  first,     ///< before what begins the whole text: transformers' rule with "legacy": false
  never,
};

/// What other files say of a model.
struct SentencePieceExtras {
  PrefixSpace prefix = PrefixSpace::by_model;
  std::vector<DeclaredToken> added;
  bool begins = true;  ///< a document begins with the model's token for that
  std::string eos;     ///< the token that ends documents; "": the model's own
};

/// Gives the ids of SentencePiece's own EncodeAsIds of the whole text. Pieces that the user defined are
/// parsed everywhere, as it does, and so are added tokens that are not special; control pieces (<s>, </s>)
/// and special tokens where they lie in a parsed range. What stands between two of those is a text of its
/// own.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// From a model file's bytes; `name` is for messages. Error (usage) when they are not a SentencePiece
  /// model, and when `extras` do not go with it.
  SentencePieceTokenizer(std::string_view model, const std::string& name,
                         const SentencePieceExtras& extras = {});
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
  std::optional<Token> document_start() const override { return start_; }
  std::optional<Token> document_end() const override { return end_; }
  std::optional<Token> unknown() const override;

 private:
  enum class Kind : std::uint8_t { text, byte, control, unknown, added };

  std::unique_ptr<SentencePieceBpe> fast_bpe() const;
  void add(const std::vector<DeclaredToken>& declared, const std::string& name);
  bool has_prefix(std::string_view text, std::size_t base) const;
  void split(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>> parsed,
             std::vector<Token>& out, std::vector<std::size_t>* begins) const;
  void encode_part(std::string_view text, std::size_t base, std::vector<Token>& out,
                   std::vector<std::size_t>* begins) const;

  SentencePieceFacts facts_;  ///< read first: what they refuse is not given to the library
  std::unique_ptr<sentencepiece::SentencePieceProcessor> model_;
  std::unique_ptr<SentencePieceBpe> bpe_;            ///< does the same, but faster; null where it cannot
  std::map<std::string, Token, std::less<>> names_;  ///< of tokens behind the pieces
  AddedTokens added_;                                ///< control pieces, and tokens that other files declare
  bool parsed_everywhere_ = false;                   ///< some of them are not special
  PrefixSpace prefix_ = PrefixSpace::by_model;
  std::optional<Token> start_, end_;
  std::vector<std::string>
      bytes_;                ///< by token, spaces as spaces; of control pieces and added tokens their name
  std::vector<Kind> kinds_;  ///< by token
  data::Hash128 identity_ = {};
};

}  // namespace holdfast::text
