#include "src/tools/chat/template.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "src/base/error.hpp"
#include "src/tools/chat/evaluator.hpp"
#include "src/tools/chat/parser.hpp"

namespace holdfast::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t longest_source = std::size_t{1} << 20;

/// The names of roles that are the template's own words wherever they come from. A list, since any other word
/// could become somebody's token: '<|' + "endoftext" + '|>'.
constexpr std::array<std::string_view, 12> usual_roles = {
    "system", "user",    "assistant",   "tool",    "function",    "developer",
    "model",  "ipython", "environment", "context", "observation", "tool_response"};

/// As transformers hands messages to a template: without what is null, which many templates would write as
/// "None"; and with thoughts by the name that templates read, whichever of three names they came by.
Json tidied(const Json& message) {
  if (!message.is_object()) return message;
  Json tidy = Json::object();
  for (const char* name : {"reasoning_content", "thinking", "reasoning"})
    if (const auto found = message.find(name); found != message.end() && !found->is_null()) {
      tidy["thinking"] = *found;
      break;
    }
  const Json thoughts = tidy.value("thinking", Json());
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) tidy[key] = value;
  if (!thoughts.is_null()) tidy["reasoning_content"] = thoughts;
  return tidy;
}

Value message_value(const Json& message, Budget& budget) {
  const Value value = from_json(tidied(message), budget);
  const auto* dict = as<Dict>(value);
  if (!dict) throw Refusal("a message must be a mapping, not " + kind_of(value));
  std::vector<Dict::Entry> entries = dict->entries;
  for (auto& [key, held] : entries) {
    const auto* role = key->bytes == "role" ? as<Text>(held) : nullptr;
    if (role && std::find(usual_roles.begin(), usual_roles.end(), role->bytes) != usual_roles.end())
      held = text_value(own_text(role->bytes));
  }
  return dict_value(std::move(entries));
}

Value messages_value(const Json& messages, Budget& budget) {
  if (!messages.is_array()) throw Refusal("messages must be a list");
  std::vector<Value> values;
  for (const Json& message : messages) values.push_back(message_value(message, budget));
  return list_value(std::move(values));
}

}  // namespace

struct Template::State {
  Body body;
  std::vector<std::pair<std::string, std::string>> specials;
  Limits limits;
  std::optional<Template> for_tools;
};

Template::Template(const std::string& source, std::vector<std::pair<std::string, std::string>> specials,
                   Limits limits) {
  if (source.size() > longest_source)
    throw Error(Exit::usage, "the chat template is too long",
                std::to_string(source.size()) + " bytes, at most 1 MiB");
  state_ = std::make_unique<State>(State{parse(source), std::move(specials), limits, std::nullopt});
}

Template::~Template() = default;
Template::Template(Template&& other) noexcept = default;

void Template::set_for_tools(Template other) { state_->for_tools.emplace(std::move(other)); }

Rendered Template::render(const Json& messages, bool generation_prompt, const Json& extra) const {
  expects(extra.is_object(), "the extra variables of a template are a mapping");
  if (state_->for_tools && extra.contains("tools"))
    return state_->for_tools->render(messages, generation_prompt, extra);
  Rendering rendering{Budget(state_->limits.steps, state_->limits.bytes), {}, "2024-07-26"};
  Evaluator evaluator(rendering);
  try {
    for (const auto& [name, text] : state_->specials) evaluator.set(name, text_value(own_text(text)));
    evaluator.set("tools", None{});
    evaluator.set("documents", None{});
    for (const auto& [name, value] : extra.items()) {
      evaluator.set(name, from_json(value, rendering.budget));
      if (name == "now" && value.is_string()) rendering.now = value.get<std::string>();
    }
    evaluator.set("messages", messages_value(messages, rendering.budget));
    evaluator.set("add_generation_prompt", generation_prompt);
    Text text = evaluator.run(state_->body);
    return {std::move(text.bytes), std::move(text.own), evaluator.generated()};
  } catch (const Refusal& refusal) {
    const Position at = evaluator.where();
    throw Error(Exit::usage,
                "the chat template stops in line " + std::to_string(at.line) + ", column " +
                    std::to_string(at.column),
                refusal.what());
  }
}

}  // namespace holdfast::chat
