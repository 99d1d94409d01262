#pragma once
// Byte-level BPE: the tokenizers of GPT-2, Llama 3, Qwen and many others.
#include <memory>

#include "src/tools/text/added_tokens.hpp"
#include "src/tools/text/byte_bpe_model.hpp"
#include "src/tools/text/lending.hpp"
#include "src/tools/text/merge_table.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::text {

/// Gives the ids that Hugging Face `tokenizers` gives without special tokens of its own around the text:
/// `as_text` is its encode_special_tokens = true. Added tokens that are not special are parsed everywhere.
/// A special token counts where its text lies in one of the parsed ranges as a whole.
class ByteBpe final : public Tokenizer {
 public:
  ByteBpe(ByteBpeModel model, const DocumentTokens& documents, const data::Hash128& identity);
  ~ByteBpe() override;

  int vocabulary() const override { return static_cast<int>(model_.bytes.size()); }
  data::Hash128 identity() const override { return identity_; }
  void encode(std::string_view text, std::vector<Token>& out, Specials specials) const override;
  void encode_template(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>> parsed,
                       std::vector<Token>& out) const override;
  void encode_template_at(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>> parsed,
                          std::vector<Token>& out, std::vector<std::size_t>& begins) const override;
  std::string decode(std::span<const Token> tokens, bool specials) const override;
  std::optional<Token> find(std::string_view piece) const override;
  std::optional<Token> document_start() const override { return start_; }
  std::optional<Token> document_end() const override { return end_; }
  std::optional<Token> unknown() const override { return std::nullopt; }

 private:
  class Encoding;
  struct Scratch;

  ByteBpeModel model_;
  MergeTable merges_;
  AddedTokens raw_, normalized_;  ///< looked for before, and behind the normaliser
  std::vector<bool> special_;     ///< by token
  data::Hash128 identity_ = {};
  std::optional<Token> start_, end_;
  mutable Lending<Scratch> scratch_;
};

/// `file`: a tokenizer.json; what lies beside it is read, too.
std::unique_ptr<Tokenizer> open_byte_bpe(const std::filesystem::path& file);

}  // namespace holdfast::text
