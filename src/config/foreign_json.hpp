#pragma once
// A JSON file that another program wrote, and how to complain about it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/lfs_pointer.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::config {

class ForeignJson {
 public:
  using Json = nlohmann::json;

  /// `what`: "the model of PATH", for messages. Error (usage) for what is no JSON object.
  ForeignJson(std::string_view text, std::string what) : what_(std::move(what)) {
    constexpr int deepest = 16;
    if (is_lfs_pointer(text)) refuse("it is a Git LFS pointer; 'git lfs pull' gets the file itself");
    try {
      const auto first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
      json_ = parse_strict_json(text.substr(first), deepest);
    } catch (const NotStrictJson& wrong) {
      refuse(std::string("it ") + wrong.what());
    }
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Exit::usage, "cannot use " + what_, why);
  }
  const Json& all() const { return json_; }
  bool has(const char* key) const { return json_.contains(key); }
  /// The value, or null where it is missing or null.
  const Json& get(const char* key) const {
    static const Json none;
    const auto found = json_.find(key);
    return found == json_.end() ? none : *found;
  }
  int size(const char* key, int most) const {
    const Json& value = get(key);
    if (value.is_null()) refuse(fmt::format("it has no {}", key));
    if (!value.is_number_integer() || value < 1 || value > most)
      refuse(fmt::format("{} is {}, not a number from 1 to {}", key, shown(value), most));
    return value.get<int>();
  }
  double number(const Json& value, const std::string& key) const {
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      refuse(fmt::format("{} is {}, not a number", key, shown(value)));
    return value.get<double>();
  }
  double positive(const Json& value, const std::string& key) const {
    if (!(number(value, key) > 0)) refuse(fmt::format("{} is {}, not a positive number", key, shown(value)));
    return value.get<double>();
  }
  bool flag(const char* key, bool by_default) const {
    const Json& value = get(key);
    if (value.is_null()) return by_default;
    if (!value.is_boolean()) refuse(fmt::format("{} is {}, not true or false", key, shown(value)));
    return value.get<bool>();
  }
  /// "" where there is none.
  std::string text(const char* key) const {
    const Json& value = get(key);
    if (value.is_null()) return "";
    if (!value.is_string()) refuse(fmt::format("{} is {}, not a text", key, shown(value)));
    return value.get<std::string>();
  }
  /// For a message.
  static std::string shown(const Json& value) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= 80 ? text : text.substr(0, 77) + "...";
  }

 private:
  std::string what_;
  Json json_;
};

}  // namespace holdfast::config
