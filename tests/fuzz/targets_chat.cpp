#include "src/base/error.hpp"
#include "src/tools/chat/template.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {

void try_jinja(std::string_view bytes) {
  using Json = nlohmann::ordered_json;
  const std::size_t nul = bytes.find('\0');
  Json messages = Json::array(
      {{{"role", "user"}, {"content", " Hi \xC3\xA9\n"}},
       {{"role", "assistant"}, {"content", "<think>so</think> yes"}, {"extra", {1, 2.5, nullptr}}}});
  if (nul != std::string_view::npos) {
    Json given = Json::parse(bytes.substr(nul + 1), nullptr, false);
    if (!given.is_discarded()) messages = std::move(given);
  }
  try {
    const chat::Template chat(std::string(bytes.substr(0, nul)),
                              {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, {5'000, 1 << 18});
    const Json extra = {{"tools", {{{"name", "f"}, {"parameters", {{"a", {{"type", "string"}}}}}}}}};
    const chat::Rendered rendered = chat.render(messages, true, extra);
    for (const auto* ranges : {&rendered.own, &rendered.answers}) {
      std::size_t place = 0;
      for (const auto& [first, end] : *ranges) {
        expects(first >= place && end > first && end <= rendered.text.size(),
                "ranges are sorted and lie in the text");
        place = end;
      }
    }
  } catch (const Error&) {
  }
}

}  // namespace holdfast::fuzz
