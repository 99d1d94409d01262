#include "src/config/toml_document.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/printable.hpp"
#include "src/base/utf8.hpp"

namespace holdfast::config {
namespace {

Value value_of(const toml::node& node) {
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* list = node.as_array()) {
    std::vector<std::string> texts;
    std::vector<double> numbers;
    for (const auto& item : *list)
      if (const auto* text = item.as_string())
        texts.push_back(text->get());
      else if (const auto number = item.value<double>())
        numbers.push_back(*number);
    if (texts.size() == list->size()) return texts;
    if (numbers.size() == list->size()) return numbers;
    return Unusable{"a list that is not all strings or all numbers"};
  }
  return Unusable{node.is_table() ? "a table" : "a date or time"};
}

bool is_array_of_tables(const toml::node& node) {
  const auto* list = node.as_array();
  return list && !list->empty() &&
         std::all_of(list->begin(), list->end(), [](const auto& item) { return item.is_table(); });
}

int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

void collect(const toml::table& table, const std::string& name, int element, std::vector<Entry>& out) {
  for (const auto& [key, node] : table) {
    const int line = static_cast<int>(key.source().begin.line);
    const std::string inner = name.empty() ? std::string(key.str()) : name + "." + std::string(key.str());
    if (const auto* child = node.as_table()) {
      out.push_back({inner, -1, "", {}, line_of(*child) ? line_of(*child) : line});
      collect(*child, inner, -1, out);
    } else if (is_array_of_tables(node)) {
      int at = 0;
      for (const auto& item : *node.as_array()) {
        out.push_back({inner, at, "", {}, line_of(item)});
        collect(*item.as_table(), inner, at++, out);
      }
    } else {
      out.push_back({name, element, std::string(key.str()), value_of(node), line});
    }
  }
}

constexpr std::uint64_t largest_settings = 16 << 20;  // bytes

std::string quote(std::string_view text) {
  if (!utf8::valid(text))
    throw Error(Exit::usage, "a text is not valid UTF-8", "a settings file cannot hold it");
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view c = text.substr(at, utf8::character_bytes(text[at]));
    at += c.size();
    switch (c.front()) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (printable(c) != c)
          out += fmt::format("\\u{:04X}", utf8::code_point(c.data()));
        else
          out += c;
    }
  }
  return out + "\"";
}

}  // namespace

Document parse_document(std::string_view text, const std::string& name) {
  Document out{name, {}};
  try {
    collect(toml::parse(text), "", -1, out.entries);
  } catch (const toml::parse_error& e) {
    throw Error(Exit::usage, fmt::format("{}:{} is not valid TOML", name, e.source().begin.line),
                std::string(e.description()), "Correct that line; tables are [name], values key = value");
  }
  std::stable_sort(out.entries.begin(), out.entries.end(),
                   [](const Entry& a, const Entry& b) { return a.line < b.line; });
  return out;
}

Document read_document(const std::filesystem::path& file) {
  std::string text;
  try {
    text = files::read_text(file, {.limit = largest_settings});
  } catch (const Error& e) {
    throw Error(Exit::usage, "cannot read the settings file " + file.string(), e.why(),
                "Is there another of nearly that name?");
  }
  return parse_document(text, file.string());
}

std::optional<Value> parse_value(std::string_view text) {
  try {
    const auto table = toml::parse("v = " + std::string(text));
    if (table.size() != 1) return std::nullopt;
    return value_of(*table.get("v"));
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

std::string spell(const Value& value) {
  struct Speller {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const {
      if (std::isnan(v)) return "nan";
      if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
      std::string text = fmt::format("{}", v);  // shortest form that reads back to the same bits
      return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    }
    std::string operator()(const std::string& v) const { return quote(v); }
    std::string operator()(const std::vector<std::string>& v) const {
      std::string text = "[";
      for (const auto& item : v) text += (text.size() > 1 ? ", " : "") + quote(item);
      return text + "]";
    }
    std::string operator()(const std::vector<double>& v) const {
      std::string text = "[";
      for (const double item : v) text += (text.size() > 1 ? ", " : "") + (*this)(item);
      return text + "]";
    }
    std::string operator()(const Unusable& v) const { return v.what; }
  };
  return std::visit(Speller{}, value);
}

}  // namespace holdfast::config
