#pragma once
// Tokens as text while they come: only whole characters are given out.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/tools/text/tokenizer.hpp"

namespace holdfast::infer {

class TextStream {
 public:
  /// What comes continues a text that ends with `last`, if it has a token.
  explicit TextStream(const text::Tokenizer& tokenizer, std::optional<text::Token> last = {});

  /// What can be shown now. Tokens beyond the tokenizer's vocabulary, of which padded models have some, are
  /// no text.
  std::string add(text::Token token);
  /// The rest: U+FFFD where a character was begun and not ended.
  std::string finish();

 private:
  const text::Tokenizer& tokenizer_;
  std::vector<text::Token>
      window_;  ///< the token before, by which a tokenizer knows that this is no beginning
  std::string pending_;
};

/// The text of an answer.
std::string text_of(const text::Tokenizer& tokenizer, std::span<const text::Token> tokens,
                    std::optional<text::Token> last = {});

}  // namespace holdfast::infer
