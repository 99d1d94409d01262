#pragma once
// What the model is asked: texts that it continues, or conversations whose next turn it says.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/tools/chat/template.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::tool {

struct Prompt {
  std::string text;                                                 ///< of a text
  nlohmann::ordered_json messages;                                  ///< of a conversation; null: it is a text
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  ///< more for the template
  bool is_conversation() const { return !messages.is_null(); }
};

/// A text; with `chat` what a user says, behind `system` unless that is empty. Throws Error (usage) when it
/// is no UTF-8; `name` is what it is called in messages.
Prompt prompt_of(std::string text, bool chat, const std::string& system, const std::string& name);

/// A prompt a line; of *.jsonl, also compressed, objects: {"prompt": text}, or with `chat` the forms of
/// chat::messages_of(), whose last turn is left out where it is the assistant's. Empty lines are passed over.
/// Throws Error (usage) that names the line.
std::vector<Prompt> read_prompts(const std::filesystem::path& path, bool chat, const std::string& system);

/// The tokens that the model sees: of a text as transformers' tokenizers give them, begin token and special
/// tokens included; of a conversation what its template writes, up to where the answer begins. Throws Error
/// (usage) where there are none.
std::vector<text::Token> tokens_of(const Prompt& prompt, const text::Tokenizer& tokenizer,
                                   const chat::Template* chat);

}  // namespace holdfast::tool
