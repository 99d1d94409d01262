#pragma once
// JSON from anywhere. Two parsers that differ about a text (one keeps the first of two equal keys, the other
// the last) see two different files; here such a text is refused, and so is one that nests without end.
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/printable.hpp"

namespace holdfast {

/// What is not the JSON that was asked for; what() says why.
class NotStrictJson : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A name in a message: short, on one line.
inline std::string quoted(std::string name) {
  if (name.size() > 80) name = name.substr(0, 77) + "...";
  return "\"" + printable_line(name) + "\"";
}

/// One object in UTF-8 that begins with the first byte of `text`, names no key twice, and holds lists and
/// objects at most `deepest` deep, itself not counted. Throws NotStrictJson.
inline nlohmann::json parse_strict_json(std::string_view text, int deepest) {
  using Json = nlohmann::json;
  if (!text.starts_with('{')) throw NotStrictJson("does not begin with '{'");
  std::vector<std::set<std::string>> keys(as_size(deepest) + 2);
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > deepest) throw NotStrictJson("is nested too deeply");
    const auto level = as_size(depth);
    if (event == Json::parse_event_t::object_start) keys[level + 1].clear();
    if (event == Json::parse_event_t::key && !keys[level].insert(parsed.get<std::string>()).second)
      throw NotStrictJson("names " + quoted(parsed.get<std::string>()) + " twice");
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception&) {
    throw NotStrictJson("is not JSON in UTF-8");
  }
}

}  // namespace holdfast
