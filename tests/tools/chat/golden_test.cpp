// What transformers and Jinja2 made of these templates, byte for byte (tests/tools/chat/golden/README.md).
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "src/base/error.hpp"
#include "tests/tools/chat/golden.hpp"

namespace holdfast::chat {
namespace {

using Json = nlohmann::ordered_json;

/// Case to text, which is null where transformers refuses.
std::map<std::string, Json> expected() {
  std::map<std::string, Json> texts;
  std::istringstream lines(golden("expected.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json each = Json::parse(line);
    texts[each["case"].get<std::string>()] = each["text"];
  }
  return texts;
}

Json rendered(const Template& chat, const Json& messages, bool prompt, const Json& extra) {
  try {
    return chat.render(messages, prompt, extra).text;
  } catch (const Error&) {
    return nullptr;
  }
}

TEST(Golden, templates_render_as_transformers_does) {
  const auto texts = expected();
  const Json table = Json::parse(golden("conversations.json"));
  int refused = 0, seen = 0;
  for (const auto& [name, specials] : table["specials"].items()) {
    const Template chat = golden_template(name);
    for (const Json& conversation : table["conversations"])
      for (const bool prompt : {false, true}) {
        const std::string what =
            name + ", " + conversation["name"].get<std::string>() + (prompt ? ", prompt" : "");
        const Json text =
            rendered(chat, conversation["messages"], prompt, conversation.value("extra", Json::object()));
        ASSERT_TRUE(texts.contains(what)) << what;
        EXPECT_EQ(text, texts.at(what)) << what;
        ++seen;
        refused += text.is_null();
      }
  }
  EXPECT_GT(seen, 700);
  EXPECT_LT(refused, seen / 4);
}

TEST(Golden, rules_hold_as_in_Jinja) {
  const auto texts = expected();
  const Json messages = {{{"role", "user"}, {"content", " Hi "}},
                         {{"role", "assistant"}, {"content", "yes"}}};
  const Json variables = Json::parse(
      R"({"d": {"x": 1, "y": "z"}, "e": {"items": [1], "n": null, "é": "ü"}, "l": [1, "b", 2.5], "s": "héllo wörld",
          "people": [{"name": "Al", "age": 40, "more": {"x": 1}}, {"name": "Bo", "age": 0}, {"name": "Cy", "age": 25}]})");
  int refused = 0, seen = 0;
  for (const Json& each : Json::parse(golden("expressions.json"))) {
    const auto source = each.get<std::string>();
    Json text = nullptr;
    try {
      text = rendered(Template(source, {{"bos_token", "<s>"}}), messages, false, variables);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage);
    }
    ASSERT_TRUE(texts.contains(source)) << source;
    EXPECT_EQ(text, texts.at(source)) << source;
    ++seen;
    refused += text.is_null();
  }
  EXPECT_GT(seen, 140);
  EXPECT_LT(refused, seen / 2);
}

}  // namespace
}  // namespace holdfast::chat
