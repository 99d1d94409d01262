#include "src/config/rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "src/base/error.hpp"
#include "src/base/printable.hpp"
#include "src/base/text.hpp"
#include "src/base/utf8.hpp"

namespace holdfast::config {
namespace {

std::string describe(const Value& value) {
  struct Describer {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(const std::string& v) const { return utf8::valid(v) ? spell(v) : "a text"; }
    std::string operator()(const std::vector<std::string>&) const { return "a list"; }
    std::string operator()(const std::vector<double>&) const { return "a list of numbers"; }
    std::string operator()(const Unusable& v) const { return v.what; }
  };
  return std::visit(Describer{}, value);
}

}  // namespace

Value fit(const Rule& rule, Value value, const std::string& where) {
  const auto refuse = [&](const std::string& wanted, const std::string& hint = "") {
    throw Error(Exit::usage, fmt::format("{} must be {}, not {}", rule.name(), wanted, describe(value)),
                where, hint);
  };
  const auto check_text = [&](const std::string& text) {
    if (!utf8::valid(text)) refuse("valid UTF-8", "Write it in UTF-8?");
    if (text.find('\0') != std::string::npos) refuse("free of NUL characters", "Leave them out?");
    if (rule.key == "name" && printable_line(text) != text)
      refuse("a name without control characters", "Leave them out?");
  };
  switch (rule.kind) {
    case Kind::boolean:
      if (!std::holds_alternative<bool>(value)) refuse("true or false", "Write it without quotes?");
      return value;
    case Kind::text:
      if (!std::holds_alternative<std::string>(value)) refuse("a text", "Put it in quotes?");
      check_text(std::get<std::string>(value));
      return value;
    case Kind::list:
      if (const auto* text = std::get_if<std::string>(&value); text && rule.lone)
        value = text->empty() ? std::vector<std::string>{} : std::vector<std::string>{*text};
      if (!std::holds_alternative<std::vector<std::string>>(value))
        refuse("a list of texts", "Write it as [\"one\", \"two\"]?");
      for (const auto& item : std::get<std::vector<std::string>>(value)) check_text(item);
      return value;
    case Kind::numbers: {
      const auto* texts = std::get_if<std::vector<std::string>>(&value);
      if (texts && texts->empty()) return std::vector<double>();  // [] is a list of anything
      if (!std::holds_alternative<std::vector<double>>(value))
        refuse("a list of numbers", "Write it as [1.0, 1.5]?");
      return value;
    }
    case Kind::choice: {
      const auto* text = std::get_if<std::string>(&value);
      if (text && std::find(rule.choices.begin(), rule.choices.end(), *text) != rule.choices.end())
        return value;
      const std::string nearest = nearest_name(text ? lower(*text) : "", rule.choices);
      refuse("one of " + fmt::format("{}", fmt::join(rule.choices, ", ")),
             nearest.empty() ? "Use one of them?" : "Did you mean " + nearest + "?");
      return value;
    }
    case Kind::integer:
      if (!std::holds_alternative<std::int64_t>(value))
        refuse("a whole number", "Write digits alone, without quotes?");
      break;
    case Kind::number:
      if (const auto* whole = std::get_if<std::int64_t>(&value)) value = static_cast<double>(*whole);
      if (!std::holds_alternative<double>(value) || !std::isfinite(std::get<double>(value)))
        refuse("a number", "Write it as 0.5 or 1e-4, without quotes?");
      break;
  }
  const bool whole = std::holds_alternative<std::int64_t>(value);
  const double number = whole ? static_cast<double>(std::get<std::int64_t>(value)) : std::get<double>(value);
  if (number < rule.least || number > rule.most) {
    const bool open = std::isinf(rule.most) || rule.most == std::numeric_limits<int>::max();
    refuse(number < rule.least && open ? fmt::format("at least {}", rule.least)
           : std::isinf(rule.least)    ? fmt::format("at most {:.0f}", rule.most)
                                       : fmt::format("between {} and {:.0f}", rule.least, rule.most),
           whole ? fmt::format("Use {}?", number < rule.least ? rule.least : rule.most)
                 : "Give a number in that range?");
  }
  return value;
}

Value from_text(const Rule& rule, const std::string& text) {
  auto parsed = parse_value(text);
  if (rule.kind == Kind::text || rule.kind == Kind::choice) {
    const bool quoted = !text.empty() && (text.front() == '"' || text.front() == '\'');
    return quoted && parsed && std::holds_alternative<std::string>(*parsed) ? *parsed : Value(text);
  }
  return parsed ? *std::move(parsed) : Value(text);
}

std::string variable_of(const Rule& rule) {
  std::string name = "HOLDFAST_SET_" + rule.table + "__" + rule.key;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

}  // namespace holdfast::config
