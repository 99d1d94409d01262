#include <array>

#include "src/base/error.hpp"
#include "src/tools/text/sentencepiece_tokenizer.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {
namespace {

using text::Token;

constexpr std::array<std::string_view, 4> samples = {
    "", " ",
    "the thing  in the\xE2\x96\x81that\r\n\t12345 e\xCC\x81\xEF\xAC\x81 \xED\x95\x9C\xEA\xB8\x80 </s><0x41> ",
    "\xC2\xA0\xEF\xBC\xA1\xE2\x91\xA0\xF0\x9F\x98\x80 of and and"};

void use(const text::SentencePieceTokenizer& tokenizer, std::string_view sample) {
  const std::pair<std::size_t, std::size_t> all = {0, sample.size()};
  std::vector<Token> plain, parsed, placed;
  std::vector<std::size_t> begins;
  tokenizer.encode(sample, plain, text::Specials::as_text);
  tokenizer.encode(sample, parsed, text::Specials::parsed);
  tokenizer.encode_template_at(sample, {&all, 1}, placed, begins);
  for (const auto* tokens : {&plain, &parsed})
    for (const Token token : *tokens)
      expects(token >= 0 && token < tokenizer.vocabulary(), "tokens are in the vocabulary");
  expects(parsed == placed && begins.size() == placed.size(), "the same tokens, each with its place");
  for (std::size_t i = 0; i < begins.size(); ++i)
    expects(begins[i] <= sample.size() && (i == 0 || begins[i - 1] <= begins[i]),
            "places are in the text, and in order");
  tokenizer.decode(plain, false);
  tokenizer.decode(parsed, true);
}

}  // namespace

void try_sentencepiece(std::string_view bytes) {
  try {
    const text::SentencePieceTokenizer tokenizer(bytes, "tokenizer.model");
    for (const std::string_view sample : samples) use(tokenizer, sample);
  } catch (const Error&) {
  }
}

}  // namespace holdfast::fuzz
