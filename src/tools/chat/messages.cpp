// The forms that instruction data come in.
#include <algorithm>
#include <array>

#include "src/base/error.hpp"
#include "src/tools/chat/conversation.hpp"

namespace holdfast::chat {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void wrong(const std::string& why, const std::string& hint = {}) {
  throw Error(Exit::usage, "this is no conversation", why, hint);
}

Json message(std::string role, Json content) {
  Json made;
  made["role"] = std::move(role);
  made["content"] = std::move(content);
  return made;
}

std::string text_in(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || found->is_null()) return {};
  if (!found->is_string()) wrong(std::string("\"") + key + "\" is no string");
  return found->get<std::string>();
}

/// Templates ask more; what they all need is that there are messages and that each has a role.
Json checked(const Json& messages, const char* key) {
  if (!messages.is_array()) wrong(std::string("\"") + key + "\" is no list");
  if (messages.empty()) wrong(std::string("\"") + key + "\" is empty");
  for (const Json& each : messages) {
    if (!each.is_object() || !each.contains("role") || !each["role"].is_string())
      wrong(std::string("an entry of \"") + key + "\" has no \"role\"");
    const auto content = each.find("content");
    if (content != each.end() && !content->is_string() && !content->is_array() && !content->is_null())
      wrong("a \"content\" is neither a string nor a list");
  }
  return messages;
}

/// The names that ShareGPT and its kin use.
std::string role_of(const std::string& from) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 14> names = {
      {{"human", "user"},
       {"user", "user"},
       {"gpt", "assistant"},
       {"assistant", "assistant"},
       {"chatgpt", "assistant"},
       {"bing", "assistant"},
       {"bard", "assistant"},
       {"model", "assistant"},
       {"bot", "assistant"},
       {"system", "system"},
       {"tool", "tool"},
       {"observation", "tool"},
       {"function", "tool"},
       {"function_response", "tool"}}};
  const auto* found =
      std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.first == from; });
  if (found == names.end())
    wrong("\"from\" is \"" + from + "\"", "human, gpt, system and tool are understood.");
  return std::string(found->second);
}

Json share_gpt(const Json& line) {
  const Json& turns = line["conversations"];
  if (turns.is_array() && !turns.empty() && turns[0].is_object() && turns[0].contains("role"))
    return checked(turns, "conversations");
  if (!turns.is_array() || turns.empty()) wrong("\"conversations\" is no list, or empty");
  Json messages = Json::array();
  if (const std::string system = text_in(line, "system"); !system.empty())
    messages.push_back(message("system", system));
  for (const Json& turn : turns) {
    if (!turn.is_object() || !turn.contains("from") || !turn["from"].is_string() || !turn.contains("value") ||
        !turn["value"].is_string())
      wrong("an entry of \"conversations\" has no \"from\" or no \"value\"");
    messages.push_back(message(role_of(turn["from"].get<std::string>()), turn["value"]));
  }
  return messages;
}

Json alpaca(const Json& line) {
  if (const auto history = line.find("history"); history != line.end() && !history->empty())
    wrong("\"history\" is not understood", "Write the turns as \"messages\".");
  std::string question = text_in(line, "instruction");
  const std::string input = text_in(line, "input"), answer = text_in(line, "output"),
                    system = text_in(line, "system");
  if (!input.empty()) question += (question.empty() ? "" : "\n\n") + input;
  if (question.empty()) wrong("\"instruction\" is empty");
  Json messages = Json::array();
  if (!system.empty()) messages.push_back(message("system", system));
  messages.push_back(message("user", std::move(question)));
  messages.push_back(message("assistant", answer));
  return messages;
}

Json prompt_and_completion(const Json& line) {
  const Json &prompt = line["prompt"], &completion = line["completion"];
  if (prompt.is_string() && completion.is_string())
    return Json::array({message("user", prompt), message("assistant", completion)});
  Json messages = checked(prompt, "prompt");
  for (const Json& each : checked(completion, "completion")) messages.push_back(each);
  return messages;
}

}  // namespace

Json messages_of(const Json& line) {
  if (!line.is_object()) wrong("it is no JSON object");
  if (line.contains("messages")) return checked(line["messages"], "messages");
  if (line.contains("conversations")) return share_gpt(line);
  if (line.contains("instruction") && line.contains("output")) return alpaca(line);
  if (line.contains("prompt") && line.contains("completion")) return prompt_and_completion(line);
  std::string keys;
  for (const auto& [key, value] : line.items())
    if (keys.size() < 200) keys += (keys.empty() ? "\"" : ", \"") + key.substr(0, 40) + "\"";
  wrong(keys.empty() ? "it is empty" : "it has " + keys,
        "messages, conversations, instruction and output, or prompt and completion are understood.");
}

Json extra_of(const Json& line) {
  Json extra = Json::object();
  for (const char* key : {"tools", "documents"})
    if (const auto found = line.find(key); found != line.end() && !found->is_null()) extra[key] = *found;
  if (const auto more = line.find("chat_template_kwargs"); more != line.end() && !more->is_null()) {
    if (!more->is_object()) wrong("\"chat_template_kwargs\" is no mapping");
    for (const auto& [key, value] : more->items()) extra[key] = value;
  }
  return extra;
}

}  // namespace holdfast::chat
