// Which files a tokenizer is made of. A SentencePiece model is read together with what lies beside it: with
// tokenizer_config.json and its kin, and with a tokenizer.json of Llama's kind (BPE over pieces with U+2581),
// which transformers would read in its place. Such a tokenizer.json is not read for its merges, but checked:
// it has to have the model's pieces. It says which tokens were added, and before which texts a space goes.
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/tools/text/beside.hpp"
#include "src/tools/text/byte_bpe.hpp"
#include "src/tools/text/json_text.hpp"
#include "src/tools/text/sentencepiece_json.hpp"
#include "src/tools/text/sentencepiece_tokenizer.hpp"
#include "src/tools/text/small_file.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::text {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr const char* spelled_space = "\xE2\x96\x81";

/// What transformers' class for Llama's models does; of other classes the model itself says it.
PrefixSpace prefix_of(const Beside& beside) {
  if (!beside.tokenizer_class.starts_with("LlamaTokenizer")) return PrefixSpace::by_model;
  if (beside.add_prefix_space == false) return PrefixSpace::never;
  return beside.legacy == false ? PrefixSpace::first : PrefixSpace::by_model;
}

SentencePieceExtras extras_of(const Beside& beside) {
  return {prefix_of(beside), beside.added, beside.add_bos_token.value_or(true), beside.token("eos_token")};
}

/// The rule for the first space in a tokenizer.json of Llama's kind, or nothing when it is of another kind.
std::optional<PrefixSpace> prefix_in(const json& document) {
  const json before = {{"type", "Prepend"}, {"prepend", spelled_space}},
             spelled = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", spelled_space}};
  const json rules = document.value("normalizer", json()), cuts = document.value("pre_tokenizer", json());
  if (cuts.is_null()) {
    if (rules == json{{"type", "Sequence"}, {"normalizers", json::array({before, spelled})}})
      return PrefixSpace::by_model;
    if (rules == spelled || rules == json{{"type", "Sequence"}, {"normalizers", json::array({spelled})}})
      return PrefixSpace::never;
    return std::nullopt;
  }
  const bool whole = cuts.is_object() && cuts.value("type", json()) == "Metaspace" &&
                     cuts.value("replacement", json()) == spelled_space &&
                     cuts.value("split", json()) == false;
  if (!rules.is_null() || !whole) return std::nullopt;
  const json scheme = cuts.value("prepend_scheme", json());
  if (scheme == "first") return PrefixSpace::first;
  return scheme == "never" ? std::optional(PrefixSpace::never) : std::nullopt;
}

/// The tokens that a tokenizer.json adds.
std::vector<DeclaredToken> added_in(const json& document, const std::string& name) {
  std::vector<DeclaredToken> out;
  const json added = document.value("added_tokens", json::array());
  if (!added.is_array()) throw damaged_json(name, "'added_tokens' is not an array");
  for (const json& token : added) {
    if (!token.is_object() || !token.value("content", json()).is_string() ||
        !token.value("id", json()).is_number_unsigned())
      throw damaged_json(name, "an added token without content and id");
    for (const char* key : {"lstrip", "rstrip", "single_word"})
      if (token.value(key, json(false)) == true)
        throw unsupported_beside(name, std::string(key) + " of token " + token["content"].get<std::string>());
    out.push_back({token["content"], token["id"].get<std::uint64_t>(),
                   token.value("special", json(false)) == true, name});
  }
  return out;
}

/// The tokenizer.json has the pieces of the model under their numbers.
void expect_same_pieces(const json& document, const SentencePieceTokenizer& model, const std::string& name) {
  const json pieces = document.value("model", json::object()).value("vocab", json());
  const auto differ = [&](const std::string& why) {
    return Error(Exit::usage, "cannot use tokenizer " + name, why,
                 "Remove the file that is not this model's tokenizer?");
  };
  if (!pieces.is_object()) throw damaged_json(name, "'vocab' is not an object");
  if (std::ssize(pieces) != model.vocabulary())
    throw differ("it has " + std::to_string(pieces.size()) + " pieces, and tokenizer.model beside it has " +
                 std::to_string(model.vocabulary()));
  for (const auto& [piece, id] : pieces.items())
    if (const auto token = model.find(piece); !token || id != *token)
      throw differ("it has '" + piece + "' as token " + id.dump() +
                   ", and tokenizer.model beside it has not");
}

std::unique_ptr<Tokenizer> open_model(const fs::path& file) {
  const fs::path folder = file.parent_path(), tokenizer_json = folder / "tokenizer.json";
  const std::string bytes = read_small_file(file);
  const Beside beside = read_beside(folder);
  SentencePieceExtras extras = extras_of(beside);
  std::error_code error;
  if (file.filename() == "tokenizer.model" && fs::exists(tokenizer_json, error)) {
    const std::string name = tokenizer_json.string();
    const json document = parse_json(read_small_file(tokenizer_json), name);
    if (const auto prefix = document.is_object() ? prefix_in(document) : std::nullopt) {
      expect_same_pieces(document, SentencePieceTokenizer(bytes, file.string()), name);
      extras.prefix = *prefix;
      auto added = added_in(document, name);
      added.insert(added.end(), extras.added.begin(), extras.added.end());
      extras.added = std::move(added);
    }
  }
  return std::make_unique<SentencePieceTokenizer>(bytes, file.string(), extras);
}

/// Llama 2's folder has both files; its tokenizer.json is of another kind than that which is read alone.
std::unique_ptr<Tokenizer> open_either(const fs::path& tokenizer_json, const fs::path& model) {
  const std::string name = tokenizer_json.string();
  const json document = parse_json(read_small_file(tokenizer_json), name);
  if (document.is_object() && prefix_in(document)) return open_model(model);
  return open_byte_bpe(tokenizer_json);
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    return path.extension() == ".json" ? open_byte_bpe(path) : open_model(path);
  const fs::path json = path / "tokenizer.json", model = path / "tokenizer.model";
  const bool has_json = fs::exists(json, error), has_model = fs::exists(model, error);
  if (has_json) return has_model ? open_either(json, model) : open_byte_bpe(json);
  if (has_model) return open_model(model);
  if (const auto own = find_own_model(path)) return open_model(*own);
  const bool halves = fs::exists(path / "vocab.json", error) && fs::exists(path / "merges.txt", error);
  throw Error(Exit::usage, "cannot use tokenizer " + path.string(),
              "the folder has no tokenizer.json, no tokenizer.model, and not one NAME.model either",
              halves ? "It has vocab.json and merges.txt: transformers writes a tokenizer.json of them "
                       "(AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER))"
                     : "");
}

}  // namespace holdfast::text
