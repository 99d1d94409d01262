#include "src/infer/text_stream.hpp"

namespace holdfast::infer {

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

/// What a first byte of UTF-8 says: how many bytes the character has (0: none begins so), and what the second
/// one may be (Unicode, table 3-7).
struct Lead {
  std::size_t length = 0;
  unsigned char low = 0x80, high = 0xBF;
};
Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

/// Of the bytes from a lead byte on, how many belong together.
std::size_t well_formed(std::string_view bytes, const Lead& lead) {
  std::size_t n = 1;
  for (; n < lead.length && n < bytes.size(); ++n) {
    const auto byte = static_cast<unsigned char>(bytes[n]);
    if (byte < (n == 1 ? lead.low : 0x80) || byte > (n == 1 ? lead.high : 0xBF)) break;
  }
  return n;
}

}  // namespace

std::string take_whole_characters(std::string& bytes) {
  std::string out;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::string_view rest = std::string_view(bytes).substr(at);
    const Lead lead = lead_of(static_cast<unsigned char>(rest[0]));
    const std::size_t n = well_formed(rest, lead);
    if (n < lead.length && n == rest.size()) break;  // it may go on
    out += n == lead.length ? rest.substr(0, n) : replacement;
    at += n;
  }
  bytes.erase(0, at);
  return out;
}

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
  return take_whole_characters(pending_);
}

std::string TextStream::finish() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return unfinished ? std::string(replacement) : std::string();
}

std::string text_of(const text::Tokenizer& tokenizer, std::span<const text::Token> tokens,
                    std::optional<text::Token> last) {
  TextStream stream(tokenizer, last);
  std::string out;
  for (const text::Token token : tokens) out += stream.add(token);
  return out + stream.finish();
}

}  // namespace holdfast::infer
