#include <optional>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/tools/chat/template.hpp"

namespace holdfast::chat {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* special_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
constexpr std::uintmax_t largest_file = std::uintmax_t{64} << 20;

std::optional<std::string> text_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  if (const auto size = fs::file_size(path, error); error || size > largest_file)
    throw Error(Exit::usage, "cannot read " + path.string(),
                error ? error.message() : "it has more than 64 MiB");
  return files::read_text(path);
}

Json json_of(const fs::path& path) {
  const auto text = text_of(path);
  if (!text) return Json::object();
  Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) throw Error(Exit::usage, "cannot read " + path.string(), "it is no JSON object");
  return json;
}

/// A template, or a list of templates with names, of which "default" is meant.
std::optional<std::string> template_in(const Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return std::nullopt;
  for (const Json& each : *found)
    if (each.is_object() && each.value("name", Json()) == "default" &&
        each.value("template", Json()).is_string())
      return each["template"].get<std::string>();
  return std::nullopt;
}

}  // namespace

Template open_template(const fs::path& folder) {
  const Json config = json_of(folder / "tokenizer_config.json");
  auto source = text_of(folder / "chat_template.jinja");
  if (!source) source = template_in(config);
  if (!source)
    throw Error(
        Exit::usage, "there is no chat template in " + folder.string(),
        "neither chat_template.jinja, nor chat_template in tokenizer_config.json",
        "A base model has none: take the folder of the model that was trained to chat, or write one?");
  const Json legacy = json_of(folder / "special_tokens_map.json");
  std::vector<std::pair<std::string, std::string>> specials;
  for (const char* name : special_names)
    for (const Json* from : {&config, &legacy}) {
      auto token = from->find(name);
      if (token == from->end() || token->is_null()) continue;
      const Json text = token->is_object() ? token->value("content", Json()) : *token;
      if (!text.is_string())
        throw Error(Exit::usage, std::string(name) + " of " + folder.string() + " is no string");
      specials.emplace_back(name, text.get<std::string>());
      break;
    }
  try {
    return Template(*source, std::move(specials));
  } catch (const Error& error) {
    throw Error(error.exit(), folder.string() + ": " + error.problem(), error.why(), error.hint());
  }
}

}  // namespace holdfast::chat
