#include "src/tools/cli/prompts.hpp"

#include <fmt/format.h>

#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/chat/conversation.hpp"
#include "src/tools/corpus/byte_stream.hpp"
#include "src/tools/corpus/text_documents.hpp"

namespace holdfast::tool {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t max_bytes = std::uint64_t{256} << 20;  // of a file of prompts

void require_utf8(const std::string& text, const std::string& name) {
  std::string repaired = text;
  if (utf8::repair(repaired) > 0) throw Error(Exit::usage, name + " is no text", "it is not valid UTF-8");
}

Json message(const char* role, const std::string& content) {
  return Json{{"role", role}, {"content", content}};
}

Json parse_line(const std::string& line) {
  auto json = json_from<Json>(line);
  if (json.is_discarded())
    throw Error(Exit::usage,
                nests_deeper(line, deepest_json) ? "it is nested too deeply" : "it is no JSON in UTF-8");
  return json;
}

/// The line with an answer to leave out, where its form wants one and it has none.
Json with_answer(Json line) {
  if (line.contains("instruction") && !line.contains("output")) line["output"] = "";
  if (line.contains("prompt") && !line.contains("completion")) {
    if (line["prompt"].is_string())
      line["completion"] = "";
    else
      line["completion"] = Json::array({message("assistant", "")});
  }
  return line;
}

Prompt prompt_of_line(const Json& line, bool chat, const std::string& system) {
  if (!line.is_object()) throw Error(Exit::usage, "it is no JSON object");
  Prompt prompt;
  if (!chat) {
    if (!line.contains("prompt") || !line["prompt"].is_string())
      throw Error(Exit::usage, "it has no text \"prompt\"", "", "Conversations need --chat");
    prompt.text = line["prompt"].get<std::string>();
    return prompt;
  }
  prompt.messages = chat::messages_of(with_answer(line));
  prompt.extra = chat::extra_of(line);
  if (prompt.messages.back()["role"] == "assistant") prompt.messages.erase(prompt.messages.size() - 1);
  if (prompt.messages.empty()) throw Error(Exit::usage, "there is nothing to answer");
  if (!system.empty() && prompt.messages.front()["role"] != "system")
    prompt.messages.insert(prompt.messages.begin(), message("system", system));
  return prompt;
}

bool is_jsonl(fs::path path) {
  if (corpus::compression_of(path) != corpus::Compression::none) path.replace_extension();
  return path.extension() == ".jsonl" || path.extension() == ".json";
}

}  // namespace

Prompt prompt_of(std::string text, bool chat, const std::string& system, const std::string& name) {
  require_utf8(text, name);
  Prompt prompt;
  if (!chat) {
    prompt.text = std::move(text);
    return prompt;
  }
  prompt.messages = Json::array();
  if (!system.empty()) prompt.messages.push_back(message("system", system));
  prompt.messages.push_back(message("user", text));
  return prompt;
}

std::vector<Prompt> read_prompts(const fs::path& path, bool chat, const std::string& system) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) throw Error(Exit::usage, "there is no file " + path.string());
  const std::string text = corpus::read_document(path, corpus::compression_of(path), max_bytes);
  const bool json = is_jsonl(path);
  std::vector<Prompt> prompts;
  std::size_t number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const std::string name = fmt::format("line {} of {}", number, path.string());
    if (!json) {
      prompts.push_back(prompt_of(std::move(line), chat, system, name));
      continue;
    }
    try {
      prompts.push_back(prompt_of_line(parse_line(line), chat, system));
    } catch (const Error& error) {
      throw Error(error.exit(), fmt::format("cannot use {}: {}", name, error.problem()), error.why(),
                  error.hint());
    }
  }
  if (prompts.empty()) throw Error(Exit::usage, "there is no prompt in " + path.string());
  return prompts;
}

std::vector<text::Token> tokens_of(const Prompt& prompt, const text::Tokenizer& tokenizer,
                                   const chat::Template* chat) {
  std::vector<text::Token> tokens;
  if (prompt.is_conversation()) {
    expects(chat != nullptr, "a conversation has a template");
    const chat::Rendered rendered = chat->render(prompt.messages, true, prompt.extra);
    tokenizer.encode_template(rendered.text, rendered.own, tokens);
  } else {
    if (const auto start = tokenizer.document_start()) tokens.push_back(*start);
    tokenizer.encode(prompt.text, tokens, text::Specials::parsed);
  }
  if (tokens.empty())
    throw Error(Exit::usage, "there is nothing to continue",
                "the prompt is empty, and the tokenizer has no begin token");
  return tokens;
}

}  // namespace holdfast::tool
