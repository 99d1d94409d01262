// Filters that choose, change and order the items of lists.
#include <algorithm>
#include <charconv>

#include "src/tools/chat/characters.hpp"
#include "src/tools/chat/filters.hpp"

namespace holdfast::chat::filters {
namespace {

std::string name_in(const Value& value, const char* what) {
  const auto* text = as<Text>(value);
  if (!text) throw Refusal(std::string("the name of a ") + what + " must be a string");
  return text->bytes;
}

/// The items that pass a test, or their own truth when none is named; `by_attribute`: or one of their
/// attributes does.
Value chosen(const Value& of, Arguments& arguments, Rendering& rendering, bool by_attribute, bool wanted) {
  const std::optional<Value> path = by_attribute ? std::optional(arguments.need("attribute")) : std::nullopt;
  std::vector<Value> given = arguments.rest();
  auto named = arguments.rest_named();
  const NamedTest* test = nullptr;
  if (!given.empty()) {
    const std::string name = name_in(given.front(), "test");
    test = find_test(name);
    if (!test) throw Refusal("the test '" + name + "' is not understood");
    given.erase(given.begin());
  }
  std::vector<Value> items;
  const auto list = items_of(of, rendering.budget);
  for (const Value& item : list->items) {
    rendering.budget.steps(1 + given.size() + named.size());
    const Value looked_at = path ? path_of(item, *path) : item;
    Arguments fresh(given, named);
    if ((test ? test->run(looked_at, fresh, rendering) : truth(looked_at)) == wanted) items.push_back(item);
  }
  return list_value(std::move(items), List::Kind::once);
}

/// What is compared: strings without regard to case unless asked for.
Value folded(const Value& value, bool case_sensitive) {
  const auto* text = as<Text>(value);
  return text && !case_sensitive ? text_value(chat::lower(text->bytes)) : value;
}

/// `items` in the order of `keys`, which are as many. Equal ones stay in their order.
std::vector<Value> ordered(const std::vector<Value>& items, const std::vector<Value>& keys, bool backwards,
                           Budget& budget) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    budget.steps(1);
    return backwards ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  });
  std::vector<Value> out;
  for (const std::size_t i : order) out.push_back(items[i]);
  return out;
}

}  // namespace

Value path_of(const Value& of, const Value& path) {
  const auto* text = as<Text>(path);
  if (!text) return item_of(of, path);
  Value value = of;
  for (const auto& [first, end] : split(text->bytes, ".", -1, false)) {
    const std::string name = text->bytes.substr(first, end - first);
    std::int64_t index = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool whole = !name.empty() && read.ec == std::errc() && read.ptr == name.data() + name.size();
    value = item_of(value, whole ? Value(index) : text_value(name));
  }
  return value;
}

Value map(const Value& of, Arguments& arguments, Rendering& rendering) {
  std::vector<Value> given = arguments.rest();
  auto named = arguments.rest_named();
  std::optional<Value> path, otherwise;
  const NamedFilter* filter = nullptr;
  if (given.empty()) {
    for (auto& [name, value] : named) {
      if (name != "attribute" && name != "default") throw Refusal("map() has no argument '" + name + "'");
      (name == "attribute" ? path : otherwise) = value;
    }
    if (!path) throw Refusal("map() needs a filter or an attribute");
  } else {
    const std::string name = name_in(given.front(), "filter");
    filter = find_filter(name);
    if (!filter) throw Refusal("the filter '" + name + "' is not understood");
    given.erase(given.begin());
  }
  std::vector<Value> items;
  const auto list = items_of(of, rendering.budget);
  for (const Value& item : list->items) {
    rendering.budget.steps(1 + given.size() + named.size());
    Arguments fresh(given, named);
    items.push_back(filter ? filter->run(item, fresh, rendering) : path_of(item, *path));
    if (otherwise && is_undefined(items.back())) items.back() = *otherwise;
  }
  return list_value(std::move(items), List::Kind::once);
}

Value select(const Value& of, Arguments& arguments, Rendering& rendering) {
  return chosen(of, arguments, rendering, false, true);
}
Value reject(const Value& of, Arguments& arguments, Rendering& rendering) {
  return chosen(of, arguments, rendering, false, false);
}
Value selectattr(const Value& of, Arguments& arguments, Rendering& rendering) {
  return chosen(of, arguments, rendering, true, true);
}
Value rejectattr(const Value& of, Arguments& arguments, Rendering& rendering) {
  return chosen(of, arguments, rendering, true, false);
}

Value unique(const Value& of, Arguments& arguments, Rendering& rendering) {
  const bool case_sensitive = arguments.boolean("case_sensitive", false);
  const auto path = arguments.take("attribute");
  arguments.finish();
  std::vector<Value> items, seen;
  const auto list = items_of(of, rendering.budget);
  for (const Value& item : list->items) {
    Value key = folded(path && !is_none(*path) ? path_of(item, *path) : item, case_sensitive);
    if (std::any_of(seen.begin(), seen.end(),
                    [&](const Value& other) { return equal(key, other, rendering.budget); }))
      continue;
    seen.push_back(std::move(key));
    items.push_back(item);
  }
  return list_value(std::move(items), List::Kind::once);
}

Value sort(const Value& of, Arguments& arguments, Rendering& rendering) {
  const bool backwards = arguments.boolean("reverse", false);
  const bool case_sensitive = arguments.boolean("case_sensitive", false);
  const auto path = arguments.take("attribute");
  arguments.finish();
  const auto items = items_of(of, rendering.budget);
  std::vector<Value> keys;
  for (const Value& item : items->items)
    keys.push_back(folded(path && !is_none(*path) ? path_of(item, *path) : item, case_sensitive));
  return list_value(ordered(items->items, keys, backwards, rendering.budget));
}

Value dictsort(const Value& of, Arguments& arguments, Rendering& rendering) {
  const bool case_sensitive = arguments.boolean("case_sensitive", false);
  const std::string by = arguments.text("by", "key");
  const bool backwards = arguments.boolean("reverse", false);
  arguments.finish();
  const auto* dict = as<Dict>(of);
  if (!dict || (by != "key" && by != "value")) throw Refusal("dictsort orders a mapping by 'key' or 'value'");
  std::vector<Value> items, keys;
  for (const auto& [key, value] : dict->entries) {
    items.push_back(list_value({key, value}, List::Kind::tuple));
    keys.push_back(folded(by == "key" ? Value(key) : value, case_sensitive));
  }
  return list_value(ordered(items, keys, backwards, rendering.budget));
}

Value reverse(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  if (as<Text>(of)) return slice_of(of, None{}, None{}, std::int64_t{-1}, rendering.budget);
  const auto list = items_of(of, rendering.budget);
  std::vector<Value> items = list->items;
  rendering.budget.steps(items.size());
  std::reverse(items.begin(), items.end());
  return list_value(std::move(items), List::Kind::once);
}

}  // namespace holdfast::chat::filters
