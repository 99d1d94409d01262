#include "src/tools/infer/text_stream.hpp"

#include "src/base/utf8.hpp"

namespace holdfast::infer {

TextStream::TextStream(const text::Tokenizer& tokenizer, std::optional<text::Token> last)
    : tokenizer_(tokenizer) {
  if (last && *last < tokenizer.vocabulary()) window_.push_back(*last);
}

std::string TextStream::add(text::Token token) {
  if (token >= tokenizer_.vocabulary()) return {};
  const std::size_t before = tokenizer_.decode(window_).size();
  window_.push_back(token);
  pending_ += tokenizer_.decode(window_).substr(before);
  window_.erase(window_.begin(), window_.end() - 1);
  return utf8::take_settled(pending_);
}

std::string TextStream::finish() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return unfinished ? std::string(utf8::replacement) : std::string();
}

std::string text_of(const text::Tokenizer& tokenizer, std::span<const text::Token> tokens,
                    std::optional<text::Token> last) {
  TextStream stream(tokenizer, last);
  std::string out;
  for (const text::Token token : tokens) out += stream.add(token);
  return out + stream.finish();
}

}  // namespace holdfast::infer
