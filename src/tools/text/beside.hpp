#pragma once
// What lies beside a tokenizer's file and changes what it means: tokenizer_config.json,
// special_tokens_map.json and added_tokens.json. They are read in the order in which transformers reads them:
// a config with "added_tokens_decoder" says everything; else the map's names go before the config's, and
// added_tokens.json says which tokens were added.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::text {

/// A token that the vocabulary has, or gets.
struct DeclaredToken {
  std::string content;
  std::optional<std::uint64_t> id;  ///< nothing: the next one, if the vocabulary does not have it
  bool special = false;
  std::string said_by;  ///< the file
};

struct Beside {
  bool configured = false;  ///< there is a tokenizer_config.json
  std::string tokenizer_class;
  std::optional<bool> add_bos_token, add_prefix_space, legacy;
  std::map<std::string, std::string> named;  ///< "bos_token": "<s>"
  std::vector<DeclaredToken> added;          ///< those with an id by their ids, then the others

  /// "" where the name is not given.
  std::string token(const std::string& name) const {
    const auto found = named.find(name);
    return found == named.end() ? std::string() : found->second;
  }
};

/// Error (usage) unless `token` declares no number, or this one, which it has in the tokenizer `name`
/// (`known`), or which is the next there.
void expect_id(const DeclaredToken& token, std::int64_t id, bool known, const std::string& name);

/// Error (usage) names the file that is damaged, and what is not supported: a token that takes the spaces
/// beside it or stands for whole words only, rules of the tokenizer's own, and two files that contradict each
/// other.
Beside read_beside(const std::filesystem::path& folder);

/// The same for the texts of these files, or nothing where there is none.
struct BesideTexts {
  std::optional<std::string> config, map, added;
};
Beside parse_beside(const BesideTexts& texts, const std::filesystem::path& folder);

}  // namespace holdfast::text
