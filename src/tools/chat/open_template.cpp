#include <optional>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/lfs_pointer.hpp"
#include "src/base/strict_json.hpp"
#include "src/tools/chat/template.hpp"
#include "src/tools/text/beside.hpp"

namespace holdfast::chat {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uintmax_t largest_file = std::uintmax_t{64} << 20;

std::optional<std::string> text_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  if (const auto size = fs::file_size(path, error); error || size > largest_file)
    throw Error(Exit::usage, "cannot read " + path.string(),
                error ? error.message() : "it has more than 64 MiB");
  std::string text = files::read_text(path);
  refuse_lfs_pointer(path, text);
  return text;
}

Json json_of(const fs::path& path) {
  const auto text = text_of(path);
  if (!text) return Json::object();
  Json json = json_from<Json>(*text);
  if (!json.is_object()) throw Error(Exit::usage, "cannot read " + path.string(), "it is no JSON object");
  return json;
}

/// A template, or the one with this name of a list of templates.
std::optional<std::string> template_in(const Json& config, const std::string& name = "default") {
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return name == "default" ? std::optional(found->get<std::string>()) : std::nullopt;
  if (!found->is_array()) return std::nullopt;
  for (const Json& each : *found)
    if (each.is_object() && each.value("name", Json()) == name && each.value("template", Json()).is_string())
      return each["template"].get<std::string>();
  return std::nullopt;
}

}  // namespace

Template open_template(const fs::path& folder) {
  const Json config = json_of(folder / "tokenizer_config.json");
  auto source = text_of(folder / "chat_template.jinja"),
       for_tools = source ? text_of(folder / "additional_chat_templates" / "tool_use.jinja")
                          : template_in(config, "tool_use");
  if (!source) source = template_in(config);
  if (!source) source = template_in(json_of(folder / "chat_template.json"));  // a processor's
  if (!source)
    throw Error(
        Exit::usage, "there is no chat template in " + folder.string(),
        "neither chat_template.jinja, nor chat_template in tokenizer_config.json or chat_template.json",
        "A base model has none: take the folder of the model that was trained to chat, or write one?");
  std::vector<std::pair<std::string, std::string>> specials;
  for (const auto& [name, token] : text::read_beside(folder).named) specials.emplace_back(name, token);
  try {
    Template chat(*source, specials);
    if (for_tools) chat.set_for_tools(Template(*for_tools, std::move(specials)));
    return chat;
  } catch (const Error& error) {
    throw Error(error.exit(), folder.string() + ": " + error.problem(), error.why(), error.hint());
  }
}

}  // namespace holdfast::chat
