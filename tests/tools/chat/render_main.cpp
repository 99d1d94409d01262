// Renders conversations for scripts/proof/chat_templates.sh: a line of JSON in ("template", "specials",
// "messages", "generation_prompt", "extra"), a line of JSON out ("text", "own", "answers", or "error").
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/tools/chat/conversation.hpp"
#include "src/tools/chat/template.hpp"

int main() {
  using Json = nlohmann::ordered_json;
  for (std::string line; std::getline(std::cin, line);) {
    Json out;
    try {
      const Json in = Json::parse(line);
      std::vector<std::pair<std::string, std::string>> specials;
      for (const auto& [name, text] : in["specials"].items())
        specials.emplace_back(name, text.get<std::string>());
      const holdfast::chat::Template chat(in["template"].get<std::string>(), specials);
      const auto rendered = chat.render(in["messages"], in["generation_prompt"].get<bool>(), in["extra"]);
      out = {{"text", rendered.text}, {"own", rendered.own}, {"answers", rendered.answers}};
      if (in.contains("tokenizer")) {
        const auto tokenizer = holdfast::text::open_tokenizer(in["tokenizer"].get<std::string>());
        const auto example = holdfast::chat::tokenize(in["messages"], chat, *tokenizer, in["extra"]);
        out["tokens"] = example.tokens;
        out["learned"] = example.learned;
      }
    } catch (const holdfast::Error& error) {
      out = {{"error", error.what()}};
    }
    std::cout << out.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
  }
}
