#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/tools/text/byte_bpe.hpp"
#include "src/tools/text/json_text.hpp"
#include "src/tools/text/sentencepiece_json.hpp"
#include "src/tools/text/sentencepiece_tokenizer.hpp"
#include "src/tools/text/small_file.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::text {
namespace fs = std::filesystem;
namespace {

std::unique_ptr<Tokenizer> open_model(const fs::path& file) {
  return std::make_unique<SentencePieceTokenizer>(read_small_file(file), file.string());
}

/// `tokenizer` has every added token of tokenizer.json under its number.
bool covers(const Tokenizer& tokenizer, const fs::path& json_file) {
  const nlohmann::json document = parse_json(read_small_file(json_file), json_file.string());
  if (!document.is_object() || !document.contains("added_tokens")) return false;
  for (const auto& added : document["added_tokens"]) {
    if (!added.is_object() || !added.contains("content") || !added["content"].is_string() ||
        !added.contains("id"))
      return false;
    const auto token = tokenizer.find(added["content"].get<std::string>());
    if (!token || added["id"] != *token) return false;
  }
  return true;
}

/// Llama 2's folder has both files. Its tokenizer.json is not read here, but says the same as tokenizer.model
/// unless somebody added tokens to it.
std::unique_ptr<Tokenizer> open_either(const fs::path& tokenizer_json, const fs::path& model) {
  try {
    return open_byte_bpe(tokenizer_json);
  } catch (const Error&) {
    auto other = open_model(model);
    if (!covers(*other, tokenizer_json)) throw;
    return other;
  }
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
  throw Error(Exit::usage, "cannot use tokenizer " + path.string(),
              "the folder has no tokenizer.json, no tokenizer.model, and not one NAME.model either");
}

}  // namespace holdfast::text
