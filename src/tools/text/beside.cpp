// BesideReader parses what there is of the three files; one that is missing counts as empty. read() first
// refuses settings that would make other tokens of a text than the tokenizer's file does. Then it takes flags
// and named tokens from the config, and, where that does not say all, named tokens from the map, which
// replace the former. Added tokens come from "added_tokens_decoder" or else from added_tokens.json, sorted by
// id; where both are there, they must agree. At last, declare_specials() adds special tokens that only have a
// name, or stand in a list, without an id.
//
// Nothing is compared with a vocabulary here: its owner calls expect_id() for each token. Errors name the
// file.
#include "src/tools/text/beside.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/tools/text/json_text.hpp"
#include "src/tools/text/small_file.hpp"

namespace holdfast::text {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr const char *config_name = "tokenizer_config.json", *map_name = "special_tokens_map.json",
                     *added_name = "added_tokens.json";
constexpr std::array special_names = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};
constexpr std::array special_lists = {"additional_special_tokens", "extra_special_tokens"};

/// Those of transformers for which a file says all; code that a folder brings along is not used for them.
constexpr std::array known_classes = {"LlamaTokenizer", "CodeLlamaTokenizer", "PreTrainedTokenizer",
                                      "Qwen2Tokenizer", "GPT2Tokenizer",      "TokenizersBackend"};

/// A token as a string, or as an object with its content.
std::optional<std::string> content_of(const json& token, const std::string& name, const std::string& file) {
  if (token.is_null()) return std::nullopt;
  if (token.is_string()) return token.get<std::string>();
  if (!token.is_object() || !token.contains("content") || !token["content"].is_string())
    throw damaged_json(file, name + " is neither a string nor an object with \"content\"");
  const auto content = token["content"].get<std::string>();
  for (const char* key : {"lstrip", "rstrip", "single_word"})
    if (token.value(key, json(false)) == true)
      throw unsupported_beside(file, std::string(key) + " of token " + content);
  return content;
}

class BesideReader {
 public:
  BesideReader(const BesideTexts& texts, const fs::path& folder)
      : config_file_(folder / config_name),
        map_file_(folder / map_name),
        added_file_(folder / added_name),
        configured_(texts.config.has_value()),
        config_(parse(texts.config, config_file_)),
        map_(parse(texts.map, map_file_)),
        added_(parse(texts.added, added_file_)) {}

  Beside read() {
    Beside out;
    out.configured = configured_;
    if (config_.value("tokenizer_class", json()).is_string())
      out.tokenizer_class = config_["tokenizer_class"];
    refuse_other_rules(out.tokenizer_class);
    out.add_bos_token = flag("add_bos_token");
    out.add_prefix_space = flag("add_prefix_space");
    out.legacy = flag("legacy");
    const bool all_in_config = config_.contains("added_tokens_decoder");
    read_named(config_, config_file_.string(), out);
    if (!all_in_config) read_named(map_, map_file_.string(), out);
    if (all_in_config)
      read_decoder(out);
    else
      read_added(out);
    std::ranges::sort(out.added, {}, [](const DeclaredToken& token) { return *token.id; });
    if (all_in_config) expect_agreement(out);
    declare_specials(out);
    return out;
  }

 private:
  static json parse(const std::optional<std::string>& text, const fs::path& file) {
    if (!text) return json::object();
    json document = parse_json(*text, file.string());
    if (!document.is_object()) throw damaged_json(file.string(), "it is not an object");
    return document;
  }

  /// What would make other tokens of a text than the tokenizer's file does.
  void refuse_other_rules(const std::string& kind) const {
    const std::string file = config_file_.string();
    for (const char* key : {"split_special_tokens", "do_lower_case"})
      if (flag(key) == true) throw unsupported_beside(file, std::string(key));
    if (!config_.value("sp_model_kwargs", json::object()).empty())
      throw unsupported_beside(file, "sp_model_kwargs " + config_["sp_model_kwargs"].dump());
    const json code = config_.value("auto_map", json());
    const bool own = code.is_object() && !code.value("AutoTokenizer", json()).is_null();
    const bool known = std::ranges::any_of(
        known_classes, [&](const char* name) { return !kind.empty() && kind.starts_with(name); });
    if (own && !known) throw unsupported_beside(file, "code of the tokenizer's own (auto_map)");
  }

  std::optional<bool> flag(const char* key) const {
    const auto found = config_.find(key);
    return found != config_.end() && found->is_boolean() ? std::optional(found->get<bool>()) : std::nullopt;
  }

  void read_named(const json& document, const std::string& file, Beside& out) {
    for (const char* name : special_names) {
      if (!document.contains(name)) continue;
      const auto content = content_of(document[name], name, file);
      if (content) out.named[name] = *content;
    }
    for (const char* list : special_lists) {
      const auto found = document.find(list);
      if (found == document.end() || found->is_null()) continue;
      // A model may name its extra tokens: {"image_token": "<image>"}.
      if (!found->is_array() && !found->is_object())
        throw damaged_json(file, std::string("\"") + list + "\" is no list");
      for (const json& token : *found)
        if (const auto content = content_of(token, std::string("a token of ") + list, file))
          if (std::ranges::find(specials_, *content, &DeclaredToken::content) == specials_.end())
            specials_.push_back({*content, {}, true, file});
    }
  }

  void read_decoder(Beside& out) const {
    const std::string file = config_file_.string();
    const json& decoder = config_["added_tokens_decoder"];
    if (!decoder.is_object()) throw damaged_json(file, "\"added_tokens_decoder\" is not an object");
    for (const auto& [key, token] : decoder.items()) {
      std::uint64_t id = 0;
      const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
      const auto content = content_of(token, "token " + key + " of added_tokens_decoder", file);
      if (end.ec != std::errc() || end.ptr != key.data() + key.size() || !content)
        throw damaged_json(file, "\"added_tokens_decoder\" has an entry \"" + key + "\" that is no token");
      const bool special = token.is_object() && token.value("special", json(false)) == true;
      out.added.push_back({*content, id, special || is_named(out, *content), file});
    }
  }

  void read_added(Beside& out) const {
    for (const auto& [content, id] : added_.items()) {
      if (!id.is_number_unsigned())
        throw damaged_json(added_file_.string(), "the id of \"" + content + "\" is no token");
      out.added.push_back({content, id.get<std::uint64_t>(), is_named(out, content), added_file_.string()});
    }
  }

  /// Two lists of added tokens must be one list.
  void expect_agreement(const Beside& out) const {
    for (const auto& [content, id] : added_.items()) {
      const auto found = std::ranges::find(out.added, content, &DeclaredToken::content);
      if (found != out.added.end() && id == *found->id) continue;
      throw Error(
          Exit::usage, "cannot use tokenizer " + added_file_.parent_path().string(),
          "added_tokens.json says that token " + id.dump() + " is '" + content +
              "', and \"added_tokens_decoder\" of tokenizer_config.json " +
              (found == out.added.end() ? "does not" : "that it is token " + std::to_string(*found->id)),
          "Remove the file that is out of date?");
    }
  }

  bool is_named(const Beside& out, const std::string& content) const {
    return std::ranges::any_of(out.named, [&](const auto& named) { return named.second == content; }) ||
           std::ranges::find(specials_, content, &DeclaredToken::content) != specials_.end();
  }

  /// Special tokens that have a name or are listed are tokens, too.
  void declare_specials(Beside& out) const {
    const auto declare = [&](const DeclaredToken& token) {
      if (!token.content.empty() &&
          std::ranges::find(out.added, token.content, &DeclaredToken::content) == out.added.end())
        out.added.push_back(token);
    };
    for (const char* name : special_names)
      declare({out.token(name),
               {},
               true,
               map_.contains(name) && !config_.contains("added_tokens_decoder") ? map_file_.string()
                                                                                : config_file_.string()});
    for (const DeclaredToken& token : specials_) declare(token);
  }

  fs::path config_file_, map_file_, added_file_;
  bool configured_;
  json config_, map_, added_;
  std::vector<DeclaredToken> specials_;  ///< of the lists
};

}  // namespace

void expect_id(const DeclaredToken& token, std::int64_t id, bool known, const std::string& name) {
  if (!token.id || *token.id == static_cast<std::uint64_t>(id)) return;
  throw Error(Exit::usage, "cannot use tokenizer " + name,
              "token '" + token.content + "' has number " + std::to_string(*token.id) + " in " +
                  token.said_by + (known ? ", and number " : ", where the next free number is ") +
                  std::to_string(id) + (known ? " in the tokenizer" : ""),
              "Is that file another tokenizer's?");
}

Beside parse_beside(const BesideTexts& texts, const fs::path& folder) {
  return BesideReader(texts, folder).read();
}

Beside read_beside(const fs::path& folder) {
  const auto text = [&](const char* name) -> std::optional<std::string> {
    std::error_code ignored;
    return fs::exists(folder / name, ignored) ? std::optional(read_small_file(folder / name)) : std::nullopt;
  };
  return parse_beside({text(config_name), text(map_name), text(added_name)}, folder);
}

}  // namespace holdfast::text
