#pragma once
// The files of tests/tools/chat/golden.
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/files.hpp"
#include "src/tools/chat/template.hpp"

namespace holdfast::chat {

inline std::string golden(const std::string& name) {
  return files::read_text(std::filesystem::path(HOLDFAST_SOURCE_DIR) / "tests/tools/chat/golden" / name);
}

inline Template golden_template(const std::string& name) {
  static const auto table = nlohmann::ordered_json::parse(golden("conversations.json"));
  std::vector<std::pair<std::string, std::string>> specials;
  for (const auto& [token, text] : table["specials"][name].items())
    specials.emplace_back(token, text.get<std::string>());
  return {golden(name + ".jinja"), specials};
}

}  // namespace holdfast::chat
