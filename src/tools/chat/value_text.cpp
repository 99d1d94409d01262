// to_text() returns a string as it is, and nothing for undefined. Every other value goes through a Writer:
// repr() and json() walk down lists and mappings, and scalar() writes numbers, booleans and none. Each piece
// of text is paid for before it is appended, since a small value may hold one list many times; how deep
// values lie is bounded where they are made (value.cpp).
//
// float_text() writes the fewest digits that read back as the same number. string_repr() takes the quotes
// that Python takes, and json_string() the escapes of json.dumps(), with surrogate pairs where only ASCII is
// allowed. A value that has no text, such as a macro or a generator, is a Refusal.
#include "src/tools/chat/value_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "src/base/as_size.hpp"
#include "src/tools/chat/characters.hpp"

namespace holdfast::chat {
namespace {

/// float.__repr__: the fewest digits that read back the same, with an exponent when it is below -4 or
/// above 15.
std::string float_text(double number, bool json) {
  if (std::isnan(number)) return json ? "NaN" : "nan";
  if (std::isinf(number)) return std::string(number < 0 ? "-" : "") + (json ? "Infinity" : "inf");
  std::array<char, 40> buffer;
  auto end = std::to_chars(buffer.begin(), buffer.end(), number, std::chars_format::scientific).ptr;
  std::string digits(buffer.begin(), end);
  const std::size_t e = digits.find('e');
  const int exponent = std::stoi(digits.substr(e + 1));
  if (exponent < -4 || exponent > 15) return digits;
  end = std::to_chars(buffer.begin(), buffer.end(), number, std::chars_format::fixed).ptr;
  std::string text(buffer.begin(), end);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string hex(char32_t number, int digits) {
  std::string text;
  for (int shift = 4 * digits - 4; shift >= 0; shift -= 4) text += "0123456789abcdef"[number >> shift & 15];
  return text;
}

std::string string_repr(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t first = at;
    const char32_t c = next_character(text, at);
    if (c == '\\' || c == static_cast<char32_t>(quote))
      (out += '\\') += static_cast<char>(c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (is_printable(c))
      out += text.substr(first, at - first);
    else if (c < 0x100)
      out += "\\x" + hex(c, 2);
    else if (c < 0x10000)
      out += "\\u" + hex(c, 4);
    else
      out += "\\U" + hex(c, 8);
  }
  return out += quote;
}

std::string json_string(std::string_view text, bool ascii) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t first = at;
    const char32_t c = next_character(text, at);
    constexpr std::string_view escaped = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt";
    const std::size_t which = c < 0x80 ? escaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (which != std::string_view::npos)
      (out += '\\') += letters[which];
    else if (c < 0x20)
      out += "\\u" + hex(c, 4);
    else if (c < 0x7F || !ascii)
      out += text.substr(first, at - first);
    else if (c < 0x10000)
      out += "\\u" + hex(c, 4);
    else
      out += "\\u" + hex(0xD7C0 + (c >> 10), 4) + "\\u" + hex(0xDC00 + (c & 0x3FF), 4);
  }
  return out += '"';
}

/// Writes one value into `out_`; what it writes is paid for as it grows, since a small value may hold the
/// same list many times.
class Writer {
 public:
  explicit Writer(Budget& budget) : budget_(budget) {}
  std::string take() { return std::move(out_); }

  void repr(const Value& value) {
    if (const auto* text = as<Text>(value)) return put(string_repr(text->bytes));
    if (const auto* list = as<List>(value)) return list_repr(*list);
    if (const auto* dict = as<Dict>(value)) return dict_repr(*dict);
    if (is_undefined(value)) return put("Undefined");
    if (!scalar(value, false)) throw Refusal(kind_of(value) + " cannot be written as text");
  }

  void json(const Value& value, const JsonStyle& style, std::int64_t level) {
    if (const auto* text = as<Text>(value)) return put(json_string(text->bytes, style.ascii));
    if (const auto* list = as<List>(value); list && list->kind <= List::Kind::tuple) {
      group('[', ']', style, level, list->items.size(),
            [&](std::size_t i) { json(list->items[i], style, level + 1); });
    } else if (const auto* dict = as<Dict>(value)) {
      std::vector<const Dict::Entry*> entries;
      for (const auto& entry : dict->entries) entries.push_back(&entry);
      if (style.sorted)
        std::sort(entries.begin(), entries.end(),
                  [](const auto* a, const auto* b) { return a->first->bytes < b->first->bytes; });
      group('{', '}', style, level, entries.size(), [&](std::size_t i) {
        put(json_string(entries[i]->first->bytes, style.ascii));
        put(style.between_key_and_value);
        json(entries[i]->second, style, level + 1);
      });
    } else if (!scalar(value, true)) {
      throw Refusal("JSON has no word for " + kind_of(value));
    }
  }

  bool scalar(const Value& value, bool json) {
    if (is_none(value)) return put(json ? "null" : "None"), true;
    if (const auto* b = std::get_if<bool>(&value))
      return put(*b ? (json ? "true" : "True") : json ? "false" : "False"), true;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return put(std::to_string(*integer)), true;
    if (const auto* real = std::get_if<double>(&value)) return put(float_text(*real, json)), true;
    return false;
  }

 private:
  void put(std::string_view text) {
    budget_.steps(1);
    budget_.bytes(text.size());
    out_ += text;
  }

  template <class Each>
  void group(char open, char close, const JsonStyle& style, std::int64_t level, std::size_t count,
             const Each& each) {
    const auto new_line = [&](std::int64_t depth) {
      if (!style.indent) return;
      const auto spaces = as_size(std::max<std::int64_t>(*style.indent, 0) * depth);
      budget_.bytes(spaces);
      put("\n");
      out_.append(spaces, ' ');
    };
    put({&open, 1});
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) put(style.between_items);
      new_line(level + 1);
      each(i);
    }
    if (count > 0) new_line(level);
    put({&close, 1});
  }

  void list_repr(const List& list) {
    if (list.kind > List::Kind::tuple) throw Refusal("write `| list` behind it to show its items");
    const bool tuple = list.kind == List::Kind::tuple;
    put(tuple ? "(" : "[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) put(", ");
      repr(list.items[i]);
    }
    put(!tuple ? "]" : list.items.size() == 1 ? ",)" : ")");
  }

  void dict_repr(const Dict& dict) {
    put("{");
    for (std::size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) put(", ");
      put(string_repr(dict.entries[i].first->bytes));
      put(": ");
      repr(dict.entries[i].second);
    }
    put("}");
  }

  Budget& budget_;
  std::string out_;
};

}  // namespace

Text to_text(const Value& value, Budget& budget) {
  if (const auto* text = as<Text>(value)) {
    budget.bytes(text->bytes.size());
    return *text;
  }
  if (is_undefined(value)) return {};
  Writer writer(budget);
  writer.repr(value);
  return {writer.take(), {}};
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  if (style.indent && *style.indent > 1000) throw Refusal("an indent of more than 1000");
  Writer writer(budget);
  writer.json(value, style, 0);
  return writer.take();
}

}  // namespace holdfast::chat
