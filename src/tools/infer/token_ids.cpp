#include "src/tools/infer/token_ids.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/lfs_pointer.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::infer {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int deepest = 16;
constexpr std::uintmax_t largest_file = 16 << 20;

Json read(const fs::path& path) {
  if (fs::file_size(path) > largest_file)
    throw Error(Exit::usage, "cannot read " + path.string(), "it has more than 16 MiB");
  try {
    const std::string text = files::read_text(path);
    refuse_lfs_pointer(path, text);
    return parse_strict_json(text, deepest);
  } catch (const NotStrictJson& error) {
    throw Error(Exit::usage, "cannot read " + path.string(), std::string("it ") + error.what());
  }
}

std::vector<std::int32_t> ids_in(const Json& json, const char* key, const fs::path& path) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return {};
  std::vector<std::int32_t> ids;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (!id.is_number_unsigned() || id > std::numeric_limits<std::int32_t>::max())
      throw Error(Exit::usage, fmt::format("cannot use {} of {}", key, path.string()),
                  "it is neither a token, nor a list of tokens, nor null");
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

/// ", and ..." or "".
std::string differs(const char* what, const std::vector<std::int32_t>& said, std::optional<text::Token> own) {
  if (said.empty() || !own || std::ranges::find(said, *own) != said.end()) return {};
  return fmt::format("{} is token {} there and {} in the tokenizer", what, fmt::join(said, ", "), *own);
}

}  // namespace

TokenIds token_ids_of(const fs::path& folder) {
  TokenIds ids;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = folder / name;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) continue;
    const Json json = read(path);
    if (ids.begins.empty()) ids.begins = ids_in(json, "bos_token_id", path);
    if (!ids.ends.empty()) continue;
    ids.ends = ids_in(json, "eos_token_id", path);
    if (!ids.ends.empty() || ids.said_by.empty()) ids.said_by = path;
  }
  return ids;
}

std::vector<std::int32_t> ends_of(const TokenIds& ids, const text::Tokenizer& tokenizer) {
  if (!ids.ends.empty()) return ids.ends;
  if (const auto end = tokenizer.document_end()) return {*end};
  return {};
}

std::string disagreement(const TokenIds& ids, const text::Tokenizer& tokenizer) {
  const std::string begin = differs("what begins a text", ids.begins, tokenizer.document_start()),
                    end = differs("what ends a text", ids.ends, tokenizer.document_end());
  if (begin.empty() && end.empty()) return {};
  return fmt::format("{}: {}{}{}", ids.said_by.string(), begin, begin.empty() || end.empty() ? "" : "; ",
                     end);
}

}  // namespace holdfast::infer
