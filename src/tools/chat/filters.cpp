#include "src/tools/chat/filters.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/tools/chat/characters.hpp"
#include "src/tools/chat/value_text.hpp"

namespace holdfast::chat {
namespace filters {
namespace {

Value length(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  if (const auto* text = as<Text>(of)) rendering.budget.steps(text->bytes.size() / 16);
  return static_cast<std::int64_t>(length_of(of));
}

Value otherwise(const Value& of, Arguments& arguments, Rendering&) {
  Value value = arguments.take("default_value").value_or(text_value(std::string()));
  const bool also_false = arguments.boolean("boolean", false);
  arguments.finish();
  return is_undefined(of) || (also_false && !truth(of)) ? std::move(value) : of;
}

Value list(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  const auto items = items_of(of, rendering.budget);
  rendering.budget.steps(items->items.size());
  return list_value(items->items);
}

Value items(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  const auto* dict = as<Dict>(of);
  if (!dict && !is_undefined(of)) throw Refusal("only a mapping has items, not " + kind_of(of));
  std::vector<Value> pairs;
  for (std::size_t i = 0; dict && i < dict->entries.size(); ++i) {
    rendering.budget.steps(1);
    pairs.push_back(list_value({dict->entries[i].first, dict->entries[i].second}, List::Kind::tuple));
  }
  return list_value(std::move(pairs), List::Kind::once);
}

Value first(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  const auto list = items_of(of, rendering.budget);
  return list->items.empty() ? Value(Undefined{"first"}) : list->items.front();
}

Value last(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  const auto list = items_of(of, rendering.budget);
  return list->items.empty() ? Value(Undefined{"last"}) : list->items.back();
}

/// The number that `text` spells, as int() and float() of Python read it.
std::optional<double> number_in(std::string_view text) {
  const auto [first, end] = stripped(text, nullptr, true, true);
  text = text.substr(first, end - first);
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') text.remove_prefix(1);
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

Value to_int(const Value& of, Arguments& arguments, Rendering&) {
  Value fallback = arguments.take("default").value_or(std::int64_t{0});
  if (arguments.integer("base", 10) != 10) throw Refusal("int() reads decimal numbers only");
  arguments.finish();
  if (is_undefined(of)) throw Refusal("a number is asked of " + kind_of(of));
  std::int64_t integer = 0;
  if (is_integer(of, integer)) return integer;
  std::optional<double> number;
  if (const auto* real = std::get_if<double>(&of)) number = *real;
  if (const auto* text = as<Text>(of)) {
    const auto [begin, end] = stripped(text->bytes, nullptr, true, true);
    std::string_view digits = std::string_view(text->bytes).substr(begin, end - begin);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), integer);
    if (!digits.empty() && read.ec == std::errc() && read.ptr == digits.data() + digits.size())
      return integer;
    number = number_in(text->bytes);
  }
  if (!number || !std::isfinite(*number)) return fallback;
  if (std::abs(*number) >= 0x1p63) throw Refusal("an integer has more than 63 bits");
  return static_cast<std::int64_t>(*number);
}

Value to_float(const Value& of, Arguments& arguments, Rendering&) {
  Value fallback = arguments.take("default").value_or(0.0);
  arguments.finish();
  if (is_undefined(of)) throw Refusal("a number is asked of " + kind_of(of));
  double number = 0;
  if (is_number(of, number)) return number;
  const auto* text = as<Text>(of);
  const auto read = text ? number_in(text->bytes) : std::nullopt;
  return read ? Value(*read) : fallback;
}

constexpr NamedFilter table[] = {
    {"trim", trim},
    {"string", string},
    {"safe", string},
    {"upper", upper},
    {"lower", lower},
    {"capitalize", capitalize},
    {"title", title},
    {"replace", replace},
    {"indent", indent},
    {"join", join},
    {"tojson", tojson},
    {"length", length},
    {"count", length},
    {"default", otherwise},
    {"d", otherwise},
    {"list", list},
    {"items", items},
    {"first", first},
    {"last", last},
    {"int", to_int},
    {"float", to_float},
    {"map", map},
    {"select", select},
    {"reject", reject},
    {"selectattr", selectattr},
    {"rejectattr", rejectattr},
    {"unique", unique},
    {"sort", sort},
    {"dictsort", dictsort},
    {"reverse", reverse},
};

}  // namespace
}  // namespace filters

const NamedFilter* find_filter(std::string_view name) {
  const auto* found = std::find_if(std::begin(filters::table), std::end(filters::table),
                                   [&](const auto& filter) { return filter.name == name; });
  return found == std::end(filters::table) ? nullptr : found;
}

}  // namespace holdfast::chat
