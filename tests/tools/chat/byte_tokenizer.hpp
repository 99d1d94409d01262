#pragma once
// A tokenizer whose tokens are bytes, and a few special tokens, so that a test can say which bytes are
// learned.
#include <algorithm>
#include <string>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::chat {

class ByteTokenizer : public text::Tokenizer {
 public:
  using Token = text::Token;

  explicit ByteTokenizer(std::vector<std::string> specials) : specials_(std::move(specials)) {}

  int vocabulary() const override { return 256 + static_cast<int>(specials_.size()); }
  data::Hash128 identity() const override { return {}; }
  void encode(std::string_view text, std::vector<Token>& out, text::Specials specials) const override {
    const std::pair<std::size_t, std::size_t> all(0, text.size());
    std::vector<std::size_t> begins;
    encode_template_at(text, {&all, specials == text::Specials::parsed ? std::size_t{1} : 0}, out, begins);
  }
  void encode_template(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>> parsed,
                       std::vector<Token>& out) const override {
    std::vector<std::size_t> begins;
    encode_template_at(text, parsed, out, begins);
  }
  void encode_template_at(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>> parsed,
                          std::vector<Token>& out, std::vector<std::size_t>& begins) const override {
    for (std::size_t at = 0; at < text.size();) {
      begins.push_back(at);
      const auto found = std::find_if(specials_.begin(), specials_.end(), [&](const std::string& special) {
        return text.substr(at).starts_with(special) &&
               std::any_of(parsed.begin(), parsed.end(), [&](const auto& range) {
                 return range.first <= at && at + special.size() <= range.second;
               });
      });
      const bool special = found != specials_.end();
      out.push_back(special ? 256 + static_cast<Token>(found - specials_.begin())
                            : static_cast<unsigned char>(text[at]));
      at += special ? found->size() : 1;
    }
  }
  std::string decode(std::span<const Token> tokens, bool specials) const override {
    std::string text;
    for (const Token token : tokens) {
      if (token < 256)
        text += static_cast<char>(token);
      else if (specials)
        text += specials_[as_size(token) - 256];
    }
    return text;
  }
  std::optional<Token> find(std::string_view piece) const override {
    const auto found = std::find(specials_.begin(), specials_.end(), piece);
    if (found == specials_.end()) return std::nullopt;
    return 256 + static_cast<Token>(found - specials_.begin());
  }
  std::optional<Token> document_start() const override { return std::nullopt; }
  std::optional<Token> document_end() const override { return std::nullopt; }
  std::optional<Token> unknown() const override { return std::nullopt; }

 private:
  std::vector<std::string> specials_;
};

}  // namespace holdfast::chat
