// Lists, mappings, loops and methods are made by the functions here. Those calculate how deep values lie
// inside the new one, and refuse more than deepest_value (list_value(), dict_value() and method_value(); a
// Loop lies around a list that was checked). The stack for walking down a value, or for destroying it, is
// thus bounded. Namespaces and macros are only pointed at, and count as flat.
//
// The other functions answer as Python does, or refuse. equal() and less() compare numbers of all kinds, a
// boolean as an integer, and else only values of one kind; a kind without a content to compare equals itself
// alone. Strings are ordered by bytes, which is the order of their code points. equal(), contains() and
// items_of() pay from the Budget for what they go through.
#include "src/tools/chat/value.hpp"

#include <algorithm>

#include "src/tools/chat/characters.hpp"

namespace holdfast::chat {
namespace {

int depth_of(const Value& value) {
  if (const auto* list = as<List>(value)) return list->depth;
  if (const auto* dict = as<Dict>(value)) return dict->depth;
  if (const auto* loop = as<Loop>(value)) return loop->items->depth + 1;
  if (const auto* method = as<Method>(value)) return depth_of(method->self) + 1;
  return 0;
}

int checked(int depth) {
  if (depth > deepest_value) throw Refusal("values lie too deep inside each other");
  return depth;
}

Value converted(const nlohmann::ordered_json& json, Budget& budget, int depth) {
  checked(depth);
  budget.steps(1);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_integer:
      return json.get<std::int64_t>();
    case nlohmann::ordered_json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > INT64_MAX) throw Refusal("a number has more than 63 bits");
      return json.get<std::int64_t>();
    case nlohmann::ordered_json::value_t::number_float:
      return json.get<double>();
    case nlohmann::ordered_json::value_t::string:
      return text_value(json.get_ref<const std::string&>());
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(converted(item, budget, depth + 1));
      return list_value(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      std::vector<Dict::Entry> entries;
      for (const auto& [key, item] : json.items())
        entries.emplace_back(std::make_shared<Text>(Text{key, {}}), converted(item, budget, depth + 1));
      return dict_value(std::move(entries));
    }
    default:
      return None{};
  }
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  const auto place = places.find(key);
  return place == places.end() ? nullptr : &entries[place->second].second;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : entries)
    if (key == name) return &value;
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, held] : entries)
    if (key == name) return void(held = std::move(value));
  entries.emplace_back(name, std::move(value));
}

Value text_value(Text text) { return std::make_shared<const Text>(std::move(text)); }

Value text_value(std::string bytes) { return text_value(Text{std::move(bytes), {}}); }

Value list_value(std::vector<Value> items, List::Kind kind) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  return std::make_shared<const List>(List{std::move(items), kind, checked(depth + 1)});
}

Value dict_value(std::vector<Dict::Entry> entries) {
  auto dict = std::make_shared<Dict>();
  for (auto& [key, value] : entries) {
    dict->depth = std::max(dict->depth, checked(depth_of(value) + 1));
    const auto [place, is_new] = dict->places.emplace(key->bytes, dict->entries.size());
    if (is_new) {
      dict->entries.emplace_back(key, std::move(value));
    } else {
      dict->entries[place->second].second = std::move(value);
    }
  }
  return std::shared_ptr<const Dict>(std::move(dict));
}

Value loop_value(std::shared_ptr<const List> items, std::size_t index) {
  return std::make_shared<const Loop>(Loop{std::move(items), index});
}

Value method_value(Value self, std::string_view name) {
  checked(depth_of(self) + 1);
  return std::make_shared<const Method>(Method{std::move(self), std::string(name)});
}

Value from_json(const nlohmann::ordered_json& json, Budget& budget) { return converted(json, budget, 0); }

std::string kind_of(const Value& value) {
  static constexpr const char* kinds[] = {"undefined",   "none",    "a boolean", "a number", "a number",
                                          "a string",    "a list",  "a mapping", "a loop",   "a method",
                                          "a namespace", "a macro", "a function"};
  if (const auto* undefined = std::get_if<Undefined>(&value))
    if (!undefined->name.empty()) return "'" + undefined->name + "', which is undefined";
  return kinds[value.index()];
}

bool is_integer(const Value& value, std::int64_t& number) {
  if (const auto* boolean = std::get_if<bool>(&value)) return number = *boolean, true;
  const auto* integer = std::get_if<std::int64_t>(&value);
  return integer ? number = *integer, true : false;
}

bool is_number(const Value& value, double& number) {
  std::int64_t integer = 0;
  if (is_integer(value, integer)) return number = static_cast<double>(integer), true;
  const auto* real = std::get_if<double>(&value);
  return real ? number = *real, true : false;
}

bool truth(const Value& value) {
  if (is_undefined(value) || is_none(value)) return false;
  if (double number = 0; is_number(value, number)) return number != 0;
  if (const auto* text = as<Text>(value)) return !text->bytes.empty();
  if (const auto* list = as<List>(value)) return list->kind == List::Kind::once || !list->items.empty();
  if (const auto* dict = as<Dict>(value)) return !dict->entries.empty();
  return true;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.steps(1);
  std::int64_t i = 0, j = 0;
  if (is_integer(a, i) && is_integer(b, j)) return i == j;
  double x = 0, y = 0;
  if (is_number(a, x) && is_number(b, y)) return x == y;
  if (a.index() != b.index()) return false;
  if (is_undefined(a) || is_none(a)) return true;
  if (const auto* s = as<Text>(a), *t = as<Text>(b); s && t) {
    budget.steps(std::min(s->bytes.size(), t->bytes.size()) / 64);
    return s->bytes == t->bytes;
  }
  if (const auto* s = as<List>(a), *t = as<List>(b); s && t) {
    if (s->kind != t->kind || s->items.size() != t->items.size()) return false;
    for (std::size_t k = 0; k < s->items.size(); ++k)
      if (!equal(s->items[k], t->items[k], budget)) return false;
    return true;
  }
  if (const auto* s = as<Dict>(a), *t = as<Dict>(b); s && t) {
    if (s->entries.size() != t->entries.size()) return false;
    for (const auto& [key, value] : s->entries) {
      const Value* other = t->find(key->bytes);
      if (!other || !equal(value, *other, budget)) return false;
    }
    return true;
  }
  return std::visit(
      [&](const auto& held) {
        if constexpr (requires { held == held; })
          return held == std::get<std::decay_t<decltype(held)>>(b);
        else
          return false;
      },
      a);
}

bool less(const Value& a, const Value& b) {
  double x = 0, y = 0;
  std::int64_t i = 0, j = 0;
  if (is_integer(a, i) && is_integer(b, j)) return i < j;
  if (is_number(a, x) && is_number(b, y)) return x < y;
  const auto *s = as<Text>(a), *t = as<Text>(b);
  if (!s || !t) throw Refusal("cannot order " + kind_of(a) + " and " + kind_of(b));
  return s->bytes < t->bytes;
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const auto* text = as<Text>(container)) {
    const auto* part = as<Text>(item);
    if (!part) throw Refusal("only a string can be in a string, not " + kind_of(item));
    budget.steps(text->bytes.size() / 64);
    return text->bytes.find(part->bytes) != std::string::npos;
  }
  if (const auto* dict = as<Dict>(container)) {
    const auto* key = as<Text>(item);
    return key && dict->find(key->bytes);
  }
  if (const auto* list = as<List>(container))
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& each) { return equal(each, item, budget); });
  if (is_undefined(container)) return false;
  throw Refusal("nothing can be in " + kind_of(container));
}

std::shared_ptr<const List> items_of(const Value& value, Budget& budget) {
  if (const auto* list = std::get_if<std::shared_ptr<const List>>(&value)) return *list;
  std::vector<Value> items;
  if (const auto* text = as<Text>(value)) {
    const std::vector<std::size_t> starts = character_starts(text->bytes);
    budget.steps(starts.size());
    for (std::size_t i = 0; i + 1 < starts.size(); ++i)
      items.push_back(text_value(part(*text, starts[i], starts[i + 1])));
  } else if (const auto* dict = as<Dict>(value)) {
    budget.steps(dict->entries.size());
    for (const auto& entry : dict->entries) items.emplace_back(entry.first);
  } else if (!is_undefined(value)) {
    throw Refusal("cannot go through " + kind_of(value));
  }
  return std::get<std::shared_ptr<const List>>(list_value(std::move(items)));
}

std::size_t length_of(const Value& value) {
  if (const auto* text = as<Text>(value)) return count_characters(text->bytes);
  if (const auto* dict = as<Dict>(value)) return dict->entries.size();
  if (const auto* list = as<List>(value); list && list->kind != List::Kind::once) return list->items.size();
  if (is_undefined(value)) return 0;
  throw Refusal(kind_of(value) + " has no length");
}

}  // namespace holdfast::chat
