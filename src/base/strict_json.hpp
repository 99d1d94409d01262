#pragma once
// All JSON that Holdfast reads is parsed here (scripts/style.py): none of it nests without end, which would
// overflow the stack of whoever walks through it. json_from() is for records, of which what cannot be read is
// passed over or told; typed() reads their fields. parse_strict_json() is for files in formats of others: two
// parsers that differ about a text (one keeps the first of two equal keys, the other the last) see two
// different files, so such a text is refused.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/printable.hpp"

namespace holdfast {

/// Lists and objects in JSON may be so deep in each other, the outermost not counted.
inline constexpr int deepest_json = 64;

/// Do brackets nest deeper? Exact for JSON, and never less than what a parser sees before it finds that a
/// text is none.
inline bool nests_deeper(std::string_view text, int deepest) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++at;
    if (in_string) continue;
    if ((c == '[' || c == '{') && ++depth > deepest + 1) return true;
    if (c == ']' || c == '}') --depth;
  }
  return false;
}

/// Discarded where `text` is not JSON in UTF-8, or nests deeper than `deepest`: is_discarded() says so, it is
/// no object and no list, and at() of it throws as of any value that is neither.
template <class Json = nlohmann::json>
Json json_from(std::string_view text, int deepest = deepest_json) {
  if (nests_deeper(text, deepest)) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, false);
}

/// The value of `key`, if `object` is one and has it as T: bool, an integer that fits, a number, text. Never
/// throws.
template <class T, class Json>
std::optional<T> typed(const Json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if constexpr (std::is_same_v<T, bool>) {
    if (found->is_boolean()) return found->template get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    if (found->is_number_unsigned()) {
      if (const auto number = found->template get<std::uint64_t>(); std::in_range<T>(number))
        return static_cast<T>(number);
    } else if (found->is_number_integer()) {
      if (const auto number = found->template get<std::int64_t>(); std::in_range<T>(number))
        return static_cast<T>(number);
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    if (found->is_number()) return found->template get<T>();
  } else {
    static_assert(std::is_same_v<T, std::string>);
    if (found->is_string()) return found->template get<std::string>();
  }
  return std::nullopt;
}

/// As text for standard output, in ASCII: all other characters are escaped, so a terminal obeys none of them
/// and a reader gets them as they were. U+FFFD stands for what is not UTF-8.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

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
