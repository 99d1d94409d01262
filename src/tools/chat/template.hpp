#pragma once
// Conversations as a model's chat template writes them. Templates are Jinja, of which the part is understood
// that published chat templates use; what is not understood is refused when the template is read.
//
// It is the Jinja of transformers' apply_chat_template: trim_blocks and lstrip_blocks are on, a newline at
// the end is dropped, lists and mappings cannot be changed, what is null in a message is not there, `tools`
// and `documents` are none when they are not given, and the extras are raise_exception, strftime_now, break,
// continue and {% generation %}. Two things are different. A rendering depends on nothing but what it is
// given: strftime_now writes the day that `extra` calls "now", or 26 July 2024, the day that the templates of
// Llama 3 were published with. And macros are defined outside of loops.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::chat {

/// Rendered text; what came from the template itself, where special tokens are parsed, and what came from
/// values, where they are not.
struct Rendered {
  std::string text;
  /// [first, end) of `text`, sorted, disjoint. The special tokens are the template's own too, and so are the
  /// usual names of roles, of which some templates make tokens ('<|' + message.role + '|>').
  std::vector<std::pair<std::size_t, std::size_t>> own;
  /// What the template marks as said by the assistant, with {% generation %}; most mark nothing.
  std::vector<std::pair<std::size_t, std::size_t>> answers;
};

/// What one rendering may cost. A template of a published model takes some thousand steps for a long
/// conversation.
struct Limits {
  std::int64_t steps = 20'000'000;
  std::int64_t bytes = std::int64_t{256} << 20;  ///< of text that is made on the way
};

class Template {
 public:
  /// Throws Error (usage) that names line and column of what it does not understand. `specials`: bos_token,
  /// eos_token and others that the template may name.
  Template(const std::string& source, std::vector<std::pair<std::string, std::string>> specials,
           Limits limits = {});
  ~Template();
  Template(Template&& other) noexcept;

  /// Conversations with "tools" are rendered by this one, as transformers does with templates called
  /// "tool_use".
  void set_for_tools(Template other);

  /// `messages`: [{"role": ..., "content": ...}, ...]. Throws Error (usage) with the template's own words
  /// when it refuses the conversation (raise_exception), and when it runs on without end. `extra`: more
  /// variables, such as "tools", "documents", "date_string", "enable_thinking"; "now" is the time
  /// ("2024-07-26" or "2024-07-26T12:30:00") that strftime_now writes. Many threads may render at once.
  Rendered render(const nlohmann::ordered_json& messages, bool generation_prompt,
                  const nlohmann::ordered_json& extra = nlohmann::ordered_json::object()) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The template of a Hugging Face model's folder: chat_template.jinja, or "chat_template" in
/// tokenizer_config.json or chat_template.json, with the special tokens of the files beside it; for
/// conversations with tools the one called "tool_use", if there is one. Error (usage) when there is none.
Template open_template(const std::filesystem::path& folder);

}  // namespace holdfast::chat
