#include "src/tools/text/json_text.hpp"

#include "src/base/strict_json.hpp"

namespace holdfast::text {
nlohmann::json parse_json(std::string_view text, const std::string& name) {
  auto json = json_from(text);
  if (json.is_discarded())
    throw damaged_json(name, nests_deeper(text, deepest_json) ? "its brackets are nested too deeply"
                                                              : "it is not JSON in UTF-8");
  return json;
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
