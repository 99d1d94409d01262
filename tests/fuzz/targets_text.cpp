#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/text/byte_alphabet.hpp"
#include "src/tools/text/byte_bpe.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {
namespace {

using Json = nlohmann::json;
using text::Token;

/// Spells every byte and joins nothing.
const Json& smallest_tokenizer() {
  static const Json document = [] {
    Json vocabulary = Json::object();
    for (unsigned byte = 0; byte < 256; ++byte)
      vocabulary[text::spelled(std::string(1, static_cast<char>(byte)))] = byte;
    return Json{
        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}};
  }();
  return document;
}

/// Whether decoding gives the text again, whatever it is.
bool keeps_text(const text::ByteBpeModel& model) {
  bool keeps = !model.nfc && !model.prefix_space && model.added.empty();
  for (const text::Cut& cut : model.cuts) keeps = keeps && cut.keep_matches && cut.keep_others;
  return keeps;
}

void use(const std::string& json, std::string_view sample) {
  text::ByteBpeModel model = text::read_byte_bpe(json, "tokenizer.json");
  const text::Beside beside = text::parse_beside({json, json, {}}, "folder");
  text::add_declared(model, beside, "tokenizer.json");
  const bool keeps = keeps_text(model);
  const auto documents = text::document_tokens(beside, model.begins);
  const text::ByteBpe tokenizer(std::move(model), documents, {});
  for (const auto specials : {text::Specials::as_text, text::Specials::parsed}) {
    std::vector<Token> tokens;
    tokenizer.encode(sample, tokens, specials);
    for (const Token token : tokens)
      expects(token >= 0 && token < tokenizer.vocabulary(), "tokens are in the vocabulary");
    expects(!keeps || tokenizer.decode(tokens, true) == sample, "what is cut is put together again");
  }
  const std::pair<std::size_t, std::size_t> all = {0, sample.size()};
  std::vector<Token> plain, placed;
  std::vector<std::size_t> begins;
  tokenizer.encode(sample, plain, text::Specials::parsed);
  tokenizer.encode_template_at(sample, {&all, 1}, placed, begins);
  expects(plain == placed && begins.size() == placed.size(), "the same tokens, each with its place");
  for (std::size_t i = 0; i < begins.size(); ++i)
    expects(begins[i] <= sample.size() && (i == 0 || begins[i - 1] <= begins[i]),
            "places are in the text, and in order");
}

}  // namespace

void try_tokenizer(std::string_view bytes) {
  const std::size_t nul = bytes.find('\0');
  std::string sample =
      "I'll say\r\n\t 12345\xC2\xB2 times:  e\xCC\x81\xEF\xAC\x81 \xED\x95\x9C\xEA\xB8\x80 <|end|>'S  ";
  if (nul != std::string_view::npos && utf8::valid(bytes.substr(nul + 1))) sample = bytes.substr(nul + 1);
  const std::string given(bytes.substr(0, nul));
  Json changed = Json::parse(given, nullptr, false);
  try {
    use(given, sample);
  } catch (const Error&) {
  }
  if (!changed.is_object()) return;
  Json document = smallest_tokenizer();
  document.merge_patch(changed);
  try {
    use(document.dump(), sample);
  } catch (const Error&) {
  }
}

}  // namespace holdfast::fuzz
