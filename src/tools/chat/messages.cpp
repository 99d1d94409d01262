// The forms that instruction data come in. Whatever form a line has, its answers may be marked as not to be
// learned, by keys that differ between programs: "weight" (OpenAI, Mistral, Together, Fireworks, ShareGPT),
// "train" and "training" (axolotl), "loss" (ms-swift, XTuner), "masked" (torchtune). Here they become one:
// "train": false beside such an answer. What would change the meaning of a line in another way, and cannot be
// followed here, is refused by its name: weights between 0 and 1, what is learned of a user's message,
// preferences, images.
#include <algorithm>
#include <array>
#include <optional>

#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"
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

/// Whether a key of a message says that it is learned: 0 and 1, false and true, and nothing for null.
std::optional<bool> said_by(const Json& message, const char* key, bool inverted) {
  const auto found = message.find(key);
  if (found == message.end() || found->is_null()) return std::nullopt;
  const std::string shown = "\"" + std::string(key) + "\" of a message is " + found->dump();
  if (!found->is_boolean() && *found != 0 && *found != 1)
    wrong(shown, "An answer is learned or not (1 or 0, true or false): there are no weights between.");
  return (found->is_boolean() ? found->get<bool>() : *found == 1) != inverted;
}

/// The keys that say what is learned become "train": false, or go.
Json settled(Json message) {
  static constexpr std::array<std::pair<const char*, bool>, 6> keys = {{{"weight", false},
                                                                        {"train", false},
                                                                        {"training", false},
                                                                        {"trainable", false},
                                                                        {"loss", false},
                                                                        {"masked", true}}};
  static constexpr std::array unknown = {"mask",        "train_detail", "training_detail", "loss_scale",
                                         "loss_weight", "weights",      "loss_mask",       "function_call"};
  for (const char* key : unknown)
    if (const auto found = message.find(key); found != message.end() && !found->is_null())
      wrong("a message has \"" + std::string(key) + "\", which is not understood",
            "\"weight\": 0 or \"train\": false is for an answer that is not learned, \"tool_calls\" for "
            "calls.");
  std::optional<bool> learned;
  for (const auto& [key, inverted] : keys) {
    const auto said = said_by(message, key, inverted);
    if (said && learned && *said != *learned)
      wrong("the keys of a message contradict each other", message.dump());
    if (said) learned = said;
    message.erase(key);
  }
  const bool answer = message["role"] == "assistant";
  if (learned == true && !answer)
    wrong("a message of role " + message["role"].dump() + " is to be learned",
          "Only what the assistant says is learned: leave \"weight\" and \"train\" out there.");
  if (learned == false && answer) message["train"] = false;
  return message;
}

void expect_text_parts(const Json& content) {
  for (const Json& part : content)
    if (part.is_object() && part.value("type", Json("text")) != "text")
      wrong("a \"content\" has a part of type " + part["type"].dump(), "Models here read text.");
}

/// Templates ask more; what they all need is that there are messages and that each has a role.
Json checked(const Json& messages, const char* key) {
  if (!messages.is_array()) wrong(std::string("\"") + key + "\" is no list");
  if (messages.empty()) wrong(std::string("\"") + key + "\" is empty");
  Json out = Json::array();
  for (const Json& each : messages) {
    if (!each.is_object() || !each.contains("role") || !each["role"].is_string())
      wrong(std::string("an entry of \"") + key + "\" has no \"role\"");
    const auto content = each.find("content");
    if (content != each.end() && !content->is_string() && !content->is_array() && !content->is_null())
      wrong("a \"content\" is neither a string nor a list");
    if (content != each.end() && content->is_array()) expect_text_parts(*content);
    out.push_back(settled(each));
  }
  return out;
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
  for (const Json& turn : turns) {
    if (!turn.is_object() || !turn.contains("from") || !turn["from"].is_string() || !turn.contains("value") ||
        !turn["value"].is_string())
      wrong("an entry of \"conversations\" has no \"from\" or no \"value\"");
    Json made = message(role_of(turn["from"].get<std::string>()), turn["value"]);
    for (const auto& [key, value] : turn.items())
      if (key != "from" && key != "value" && key != "role" && key != "content") made[key] = value;
    messages.push_back(settled(std::move(made)));
  }
  return messages;
}

Json alpaca(const Json& line) {
  if (const auto history = line.find("history"); history != line.end() && !history->empty())
    wrong("\"history\" is not understood", "Write the turns as \"messages\".");
  std::string question = text_in(line, "instruction");
  const std::string input = text_in(line, "input"), answer = text_in(line, "output");
  if (!input.empty()) question += (question.empty() ? "" : "\n\n") + input;
  if (question.empty()) wrong("\"instruction\" is empty");
  return Json::array({message("user", std::move(question)), message("assistant", answer)});
}

Json prompt_and_completion(const Json& line) {
  const Json &prompt = line["prompt"], &completion = line["completion"];
  if (prompt.is_string() && completion.is_string())
    return Json::array({message("user", prompt), message("assistant", completion)});
  Json messages = checked(prompt, "prompt");
  for (const Json& each : checked(completion, "completion")) messages.push_back(each);
  return messages;
}

/// The messages in the form that the line has.
Json in_its_form(const Json& line) {
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

bool is_given(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && !found->is_null() && *found != "" && *found != Json::array() &&
         *found != Json::object();
}

/// Keys beside the messages that say something else than that its answers are to be learned.
void expect_answers(const Json& line) {
  for (const char* key : {"chosen", "rejected", "rejected_response", "rejected_messages"})
    if (is_given(line, key))
      wrong(
          "it is a pair for preference training: it has \"" + std::string(key) + "\"",
          "Only answers are learned here: jq -c '{prompt, completion: .chosen}' FILE keeps the chosen ones.");
  for (const char* key : {"label", "kto_tag"})
    if (is_given(line, key) && line[key].is_boolean() &&
        (key == std::string("kto_tag") || line.contains("completion")))
      wrong("\"" + std::string(key) + "\" says whether the answer is a good one",
            "All answers are learned here: jq -c 'select(." + std::string(key) + ") | del(." + key +
                ")' FILE keeps the good ones.");
  for (const char* key : {"image", "images", "video", "videos", "audio", "audios"})
    if (is_given(line, key)) wrong("it has \"" + std::string(key) + "\"", "Models here read text.");
  for (const char* key : {"functions", "function_call"})
    if (is_given(line, key))
      wrong("it has \"" + std::string(key) + "\"", "\"tools\" are what templates know.");
  if (is_given(line, "weight") && line["weight"] != 1)
    wrong("\"weight\" of the line is " + line["weight"].dump(),
          "Lines have no weights here; data.mixture has weights for files.");
}

}  // namespace

Json messages_of(const Json& line) {
  if (!line.is_object()) wrong("it is no JSON object");
  expect_answers(line);
  Json messages = in_its_form(line);
  for (const char* key : {"system", "system_prompt"}) {
    const std::string system = text_in(line, key);
    if (system.empty()) continue;
    if (messages[0].value("role", "") == "system")
      wrong("it has \"" + std::string(key) + "\" and a system message");
    messages.insert(messages.begin(), message("system", system));
  }
  return messages;
}

namespace {

/// A list that was written as JSON in a string, as tables of strings have it; nothing where it is empty.
Json list_in(const Json& text, const std::string& key) {
  const auto& written = text.get_ref<const std::string&>();
  if (written.empty()) return nullptr;
  Json list = json_from<Json>(written);
  if (!list.is_array()) wrong("\"" + key + "\" is a string that holds no list");
  return list;
}

}  // namespace

Json extra_of(const Json& line) {
  Json extra = Json::object();
  for (const char* key : {"tools", "documents"})
    if (const auto found = line.find(key); found != line.end() && !found->is_null())
      extra[key] = found->is_string() ? list_in(*found, key) : *found;
  if (const auto more = line.find("chat_template_kwargs"); more != line.end() && !more->is_null()) {
    if (!more->is_object()) wrong("\"chat_template_kwargs\" is no mapping");
    for (const auto& [key, value] : more->items()) extra[key] = value;
  }
  return extra;
}

}  // namespace holdfast::chat
