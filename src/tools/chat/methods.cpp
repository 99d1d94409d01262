// Methods of strings, mappings, lists and loops.
#include <algorithm>
#include <array>

#include "src/tools/chat/builtins.hpp"
#include "src/tools/chat/characters.hpp"
#include "src/tools/chat/value_text.hpp"

namespace holdfast::chat {
namespace {

using TextMethod = Value (*)(const Text& self, Arguments& arguments, Rendering& rendering);

template <bool left, bool right>
Value strip(const Text& self, Arguments& arguments, Rendering& rendering) {
  const auto chars = arguments.take("chars");
  arguments.finish();
  const auto* wanted = chars ? as<Text>(*chars) : nullptr;
  if (chars && !wanted && !is_none(*chars)) throw Refusal("'chars' must be a string");
  std::string_view letters;
  if (wanted) letters = wanted->bytes;
  rendering.budget.bytes(self.bytes.size());
  rendering.budget.steps(1 + self.bytes.size() / 16 * letters.size() / 16);
  const auto [first, end] = stripped(self.bytes, wanted ? &letters : nullptr, left, right);
  return text_value(part(self, first, end));
}

Value parts_of(const Text& self, const std::vector<Range>& ranges, Rendering& rendering) {
  rendering.budget.bytes(self.bytes.size());
  rendering.budget.steps(ranges.size());
  std::vector<Value> parts;
  for (const auto& [first, end] : ranges) parts.push_back(text_value(part(self, first, end)));
  return list_value(std::move(parts));
}

template <bool from_right>
Value split(const Text& self, Arguments& arguments, Rendering& rendering) {
  const auto separator = arguments.take("sep");
  const std::int64_t most = arguments.integer("maxsplit", -1);
  arguments.finish();
  std::string_view between;
  if (separator && !is_none(*separator)) {
    const auto* text = as<Text>(*separator);
    if (!text || text->bytes.empty())
      throw Refusal("what split() cuts at must be a string that is not empty");
    between = text->bytes;
  }
  return parts_of(self, chat::split(self.bytes, between, most, from_right), rendering);
}

Value splitlines(const Text& self, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  return parts_of(self, lines_of(self.bytes), rendering);
}

template <bool at_start>
Value has_affix(const Text& self, Arguments& arguments, Rendering& rendering) {
  const Value affix = arguments.need("prefix");
  arguments.finish();
  const auto fits = [&](const Value& value) {
    const auto* text = as<Text>(value);
    if (!text) throw Refusal("a string begins and ends with strings, not with " + kind_of(value));
    return at_start ? self.bytes.starts_with(text->bytes) : self.bytes.ends_with(text->bytes);
  };
  const auto* list = as<List>(affix);
  if (!list || list->kind != List::Kind::tuple) return fits(affix);
  rendering.budget.steps(list->items.size());
  return std::any_of(list->items.begin(), list->items.end(), fits);
}

template <bool at_start>
Value without_affix(const Text& self, Arguments& arguments, Rendering& rendering) {
  const std::string affix = arguments.text("prefix", "");
  arguments.finish();
  rendering.budget.bytes(self.bytes.size());
  const bool there = at_start ? self.bytes.starts_with(affix) : self.bytes.ends_with(affix);
  const std::size_t cut = there ? affix.size() : 0;
  return text_value(part(self, at_start ? cut : 0, self.bytes.size() - (at_start ? 0 : cut)));
}

template <std::string (*changed)(std::string_view)>
Value change(const Text& self, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  rendering.budget.bytes(self.bytes.size());
  return text_value(changed(self.bytes));
}

Value replace(const Text& self, Arguments& arguments, Rendering& rendering) {
  const Value old = arguments.need("old"), fresh = arguments.need("new");
  const std::int64_t most = arguments.integer("count", -1);
  arguments.finish();
  if (!as<Text>(old) || !as<Text>(fresh)) throw Refusal("replace() needs strings");
  return text_value(replaced(self, *as<Text>(old), *as<Text>(fresh), most, rendering.budget));
}

Value join(const Text& self, Arguments& arguments, Rendering& rendering) {
  const Value given = arguments.need("iterable");
  arguments.finish();
  Text out;
  bool first = true;
  const auto list = items_of(given, rendering.budget);
  for (const Value& item : list->items) {
    const auto* text = as<Text>(item);
    if (!text) throw Refusal("join() needs strings, not " + kind_of(item));
    rendering.budget.steps(1);
    rendering.budget.bytes(text->bytes.size() + self.bytes.size());
    if (!first) append(out, self);
    first = false;
    append(out, *text);
  }
  return text_value(std::move(out));
}

Value find(const Text& self, Arguments& arguments, Rendering& rendering) {
  const std::string part = arguments.text("sub", "");
  arguments.finish();
  rendering.budget.steps(self.bytes.size() / 16);
  const std::size_t at = self.bytes.find(part);
  if (at == std::string::npos) return std::int64_t{-1};
  return static_cast<std::int64_t>(count_characters(std::string_view(self.bytes).substr(0, at)));
}

Value count(const Text& self, Arguments& arguments, Rendering& rendering) {
  const std::string part = arguments.text("sub", "");
  arguments.finish();
  rendering.budget.steps(self.bytes.size() / 16);
  if (part.empty()) return static_cast<std::int64_t>(count_characters(self.bytes)) + 1;
  return static_cast<std::int64_t>(chat::split(self.bytes, part, -1, false).size()) - 1;
}

constexpr std::pair<std::string_view, TextMethod> text_methods[] = {
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", splitlines},
    {"startswith", has_affix<true>},
    {"endswith", has_affix<false>},
    {"removeprefix", without_affix<true>},
    {"removesuffix", without_affix<false>},
    {"upper", change<upper>},
    {"lower", change<lower>},
    {"capitalize", change<capitalized>},
    {"title", change<titled>},
    {"replace", replace},
    {"join", join},
    {"find", find},
    {"count", count},
};

/// Python's, of which the first four can be called here.
constexpr std::array<std::string_view, 11> dict_methods = {
    "get", "items", "keys", "values", "clear", "copy", "fromkeys", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 11> list_methods = {
    "append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"};

Value call_dict(const Dict& self, std::string_view name, Arguments& arguments, Rendering& rendering) {
  if (name == "get") {
    const Value key = arguments.need("key");
    Value otherwise = arguments.take("default").value_or(None{});
    arguments.finish();
    const auto* text = as<Text>(key);
    const Value* found = text ? self.find(text->bytes) : nullptr;
    return found ? *found : std::move(otherwise);
  }
  arguments.finish();
  rendering.budget.steps(self.entries.size());
  std::vector<Value> items;
  for (const auto& [key, value] : self.entries)
    items.push_back(name == "items"  ? list_value({key, value}, List::Kind::tuple)
                    : name == "keys" ? Value(key)
                                     : value);
  return list_value(std::move(items), List::Kind::view);
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  const auto in = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (as<Dict>(self)) return in(dict_methods);
  if (const auto* list = as<List>(self)) return list->kind == List::Kind::list && in(list_methods);
  if (as<Loop>(self)) return name == "cycle";
  return as<Text>(self) && std::any_of(std::begin(text_methods), std::end(text_methods),
                                       [&](const auto& method) { return method.first == name; });
}

Value call_method(const Method& method, Arguments& arguments, Rendering& rendering) {
  if (const auto* text = as<Text>(method.self)) {
    const auto* found = std::find_if(std::begin(text_methods), std::end(text_methods),
                                     [&](const auto& each) { return each.first == method.name; });
    return found->second(*text, arguments, rendering);
  }
  const auto callable = dict_methods.begin() + 4;
  if (const auto* dict = as<Dict>(method.self);
      dict && std::find(dict_methods.begin(), callable, method.name) != callable)
    return call_dict(*dict, method.name, arguments, rendering);
  if (const auto* loop = as<Loop>(method.self)) {
    std::vector<Value> given = arguments.rest();
    if (given.empty()) throw Refusal("cycle() needs what to go through");
    return given[loop->index % given.size()];
  }
  // transformers' sandbox does not let templates change what they were given.
  throw Refusal("the method '" + method.name + "' cannot be called on " + kind_of(method.self));
}

}  // namespace holdfast::chat
