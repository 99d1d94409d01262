#include "src/tools/cli/run_settings.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/load.hpp"
#include "src/config/mixture.hpp"
#include "src/data/token_file.hpp"
#include "src/data/tokenizer_files.hpp"
#include "src/tools/cli/ckpt_paths.hpp"
#include "src/tools/corpus/settings.hpp"
#include "src/tools/text/sentencepiece_json.hpp"

namespace holdfast::tool {
namespace {

using Card = nlohmann::json;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// Whether `path`, or a tokenizer in this folder, is the file with this hash.
bool is_tokenizer(const fs::path& path, const std::string& identity) {
  auto candidates = data::tokenizer_files(path);
  if (is_file(path)) candidates.push_back(path);
  if (const auto own = text::find_own_model(path)) candidates.push_back(*own);
  return std::ranges::any_of(candidates, [&](const fs::path& file) {
    return data::hex(data::hash_bytes(files::read_text(file))) == identity;
  });
}

}  // namespace

std::optional<config::RunConfig> run_config_of(const fs::path& checkpoint) {
  const auto run = run_of(checkpoint.parent_path());
  if (!run || !is_file(run->config())) return {};
  return config::load(run->config()).config;
}

fs::path tokenizer_of(const config::RunConfig& run) {
  for (const config::MixturePart& part : config::mixture_of(run.data)) {
    const fs::path card_path = corpus::card_path(part.path);
    if (!is_file(card_path)) continue;
    const Card card = json_from<Card>(files::read_text(card_path));
    const Card tokenizer = card.is_object() && card.contains("tokenizer") ? card["tokenizer"] : Card();
    if (!tokenizer.is_object() || !tokenizer.contains("path") || !tokenizer["path"].is_string()) continue;
    const fs::path path = tokenizer["path"].get<std::string>();
    const Card identity = tokenizer.value("identity", Card());
    if (!identity.is_string()) continue;
    // A relative path was meant from where the tokens were made, and what was trained lies beside them.
    for (const fs::path& where : {path, card_path.parent_path() / path.filename()})
      if (is_tokenizer(where, identity.get<std::string>())) return where;
  }
  return {};
}

fs::path tokenizer_of_tokens(const fs::path& checkpoint) {
  try {
    const auto run = run_config_of(checkpoint);
    const fs::path known = run ? tokenizer_of(*run) : fs::path();
    if (known.empty() || fs::is_directory(known) || text::find_own_model(known)) return known;
    return data::tokenizer_files(known.parent_path()).empty() ? fs::path() : known.parent_path();
  } catch (const Error&) {  // the checkpoint is of use without it
    return {};
  }
}

}  // namespace holdfast::tool
