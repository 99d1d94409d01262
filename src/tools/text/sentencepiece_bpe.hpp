#pragma once
// SentencePiece's BPE without its priority queue over whole texts, whose time and memory grow faster than the
// text. It joins neighbours only to pieces, so nothing is ever joined across two characters that are
// neighbours in no piece; nor does a piece that the user defined lie across them. There the text is cut:
// mostly at spaces, into words that come again.
#include <array>
#include <bitset>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "src/tools/text/added_tokens.hpp"
#include "src/tools/text/lending.hpp"
#include "src/tools/text/merge_table.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::text {

class SentencePieceBpe {
 public:
  /// A piece that text can become, spaces spelled as spaces.
  struct Piece {
    std::string text;
    Token id = 0;
    float score = 0;  ///< of two possible joins the one to the higher score goes first
    bool user_defined = false;
  };

  /// `bytes`: the tokens of what no piece spells. Every token is below `vocabulary`.
  SentencePieceBpe(const std::vector<Piece>& pieces, const std::array<Token, 256>& bytes, int vocabulary);
  ~SentencePieceBpe();

  /// Appends the tokens of `text` (valid UTF-8), spaces spelled as spaces, to `out`, and where each begins to
  /// `begins` unless it is null. May be called from many threads at once.
  void encode(std::string_view text, std::vector<Token>& out, std::vector<std::size_t>* begins) const;

 private:
  class Encoding;
  struct Scratch;

  bool joined(std::uint32_t left, std::uint32_t right) const {
    if (left < 128 && right < 128) return ascii_neighbours_[left * 128 + right];
    return neighbours_.contains(static_cast<std::uint64_t>(left) << 32 | right);
  }
  /// The symbol of a character, or -1: no piece has it.
  Token symbol(std::uint32_t c) const {
    if (c < ascii_symbols_.size()) return ascii_symbols_[c];
    const auto found = symbols_.find(c);
    return found != symbols_.end() ? found->second : -1;
  }
  std::vector<MergeRule> rules_of(const std::vector<Piece>& pieces);
  void add_characters(std::string_view piece);

  std::array<Token, 256> bytes_;
  int vocabulary_ = 0;
  std::vector<std::string> loose_;  ///< characters of pieces that are none: symbols from vocabulary_ on
  std::unordered_map<std::uint32_t, Token> symbols_;  ///< by character
  std::array<Token, 128> ascii_symbols_ = {};
  std::unordered_set<std::uint64_t> neighbours_;
  std::bitset<128 * 128> ascii_neighbours_;
  std::vector<std::size_t> lengths_;  ///< bytes, by token
  AddedTokens user_defined_;
  MergeTable merges_;
  mutable Lending<Scratch> scratch_;
};

}  // namespace holdfast::text
