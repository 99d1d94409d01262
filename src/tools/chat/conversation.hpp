#pragma once
// A line of an instruction data set as tokens, and which of them are learned.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "src/tools/chat/template.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::chat {

/// The messages of a line, whichever of the common forms it has: {"messages": [{"role", "content"}]},
/// {"conversations": [{"from", "value"}]} (human, gpt, system), {"instruction", "input", "output"},
/// {"prompt", "completion"} (both text, or both lists of messages). "system" or "system_prompt" beside
/// them is the first message; "instruction" and "input" have a blank line between them. An answer that is not
/// to be learned, by whichever key says so, has "train": false. Throws Error (usage) that says what is
/// missing, and names what cannot be followed.
nlohmann::ordered_json messages_of(const nlohmann::ordered_json& line);

/// What else of a line its template sees: "tools", "documents", and the entries of "chat_template_kwargs".
nlohmann::ordered_json extra_of(const nlohmann::ordered_json& line);

struct Example {
  std::vector<text::Token> tokens;
  std::vector<bool> learned;  ///< one per token: it is a label that counts. True for what the assistant says,
                              ///< the token that ends its turn included, and not what is put behind that
  int rewritten = 0;  ///< turns of the assistant that are not learned since the template changed them later
};

/// The assistant's parts are those that the template marks with {% generation %}; if it marks none, they are
/// found by rendering the conversation up to each of its turns, with and without them. A turn is learned as
/// the whole conversation shows it. Where that is not what it was when it was said (templates of models that
/// think drop the thoughts of earlier turns), there is nothing of it that the model would say, and it is not
/// learned, and neither is one with "train": false. Throws Error (usage) when there is nothing to learn, and
/// says why.
Example tokenize(const nlohmann::ordered_json& messages, const Template& chat,
                 const text::Tokenizer& tokenizer,
                 const nlohmann::ordered_json& extra = nlohmann::ordered_json::object());

}  // namespace holdfast::chat
