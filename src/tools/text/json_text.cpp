#include "src/tools/text/json_text.hpp"

namespace holdfast::text {
namespace {

constexpr int deepest = 64;

/// Brackets inside brackets, strings left out; good enough for text that is not JSON, too.
int depth_of(std::string_view text) {
  int depth = 0, most = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if (c == '[' || c == '{') most = std::max(most, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return most;
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& name) {
  if (depth_of(text) > deepest) throw damaged_json(name, "its brackets are nested too deeply");
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& problem) {
    throw damaged_json(name, problem.what());
  }
}

Error damaged_json(const std::string& name, const std::string& why) {
  return {Exit::usage, "cannot use tokenizer " + name, why, "Get the file again?"};
}

Error unsupported_json(const std::string& name, const std::string& what) {
  return {Exit::usage, "cannot use tokenizer " + name, what + " is not supported",
          "Only byte-level BPE is read from tokenizer.json; if there is a tokenizer.model, give that?"};
}

Error unsupported_beside(const std::string& name, const std::string& what) {
  return {Exit::usage, "cannot use tokenizer file " + name, what + " is not supported"};
}

}  // namespace holdfast::text
