// Parts of values: attributes, items, slices.
#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/tools/chat/builtins.hpp"
#include "src/tools/chat/characters.hpp"

namespace holdfast::chat {
namespace {

Value missing(std::string_view name) { return Undefined{std::string(name)}; }

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items->items.size());
  const auto neighbour = [&](bool there, std::size_t place) -> Value {
    return there ? loop.items->items[place] : missing(name);
  };
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  // Jinja counts recursive loops only.
  if (name == "depth") return std::int64_t{1};
  if (name == "depth0") return std::int64_t{0};
  if (name == "previtem") return neighbour(index > 0, loop.index - 1);
  if (name == "nextitem") return neighbour(index + 1 < length, loop.index + 1);
  return missing(name);
}

/// Python's rule for one end of a slice.
std::int64_t clamped(const Value& bound, std::int64_t otherwise, std::int64_t length, bool backwards) {
  std::int64_t place = 0;
  if (is_undefined(bound) || is_none(bound)) return otherwise;
  if (!is_integer(bound, place)) throw Refusal("a slice needs integers, not " + kind_of(bound));
  if (place < 0) place = std::max(place, -length - 1) + length;
  return std::clamp<std::int64_t>(place, backwards ? -1 : 0, backwards ? length - 1 : length);
}

}  // namespace

Value attribute_of(const Value& of, std::string_view name) {
  if (is_undefined(of)) throw Refusal("'" + std::string(name) + "' is asked of " + kind_of(of));
  if (has_method(of, name)) return method_value(of, name);
  const Value* found = nullptr;
  if (const auto* dict = as<Dict>(of)) found = dict->find(name);
  if (const auto* space = std::get_if<Namespace*>(&of)) found = (*space)->find(name);
  if (const auto* loop = as<Loop>(of)) return loop_attribute(*loop, name);
  return found ? *found : missing(name);
}

Value item_of(const Value& of, const Value& key) {
  const auto* name = as<Text>(key);
  if (name) {
    if (const auto* dict = as<Dict>(of))
      if (const Value* found = dict->find(name->bytes)) return *found;
    return attribute_of(of, name->bytes);
  }
  if (is_undefined(of)) throw Refusal("an item is asked of " + kind_of(of));
  std::int64_t index = 0;
  if (!is_integer(key, index)) return missing("item");
  const auto placed = [&](std::size_t count) {
    if (index < 0) index += static_cast<std::int64_t>(count);
    return index >= 0 && index < static_cast<std::int64_t>(count);
  };
  if (const auto* list = as<List>(of); list && list->kind <= List::Kind::tuple && placed(list->items.size()))
    return list->items[index];
  if (const auto* text = as<Text>(of)) {
    const auto starts = character_starts(text->bytes);
    if (placed(starts.size() - 1)) {
      const auto at = as_size(index);
      return text_value(part(*text, starts[at], starts[at + 1]));
    }
  }
  return missing("item " + std::to_string(index));
}

Value slice_of(const Value& of, const Value& first, const Value& end, const Value& step, Budget& budget) {
  const auto* list = as<List>(of);
  const auto* text = as<Text>(of);
  if (!text && (!list || list->kind > List::Kind::tuple)) throw Refusal("a slice is asked of " + kind_of(of));
  std::int64_t stride = 1;
  if (!is_undefined(step) && !is_none(step) && !is_integer(step, stride))
    throw Refusal("a slice needs integers, not " + kind_of(step));
  if (stride == 0) throw Refusal("the step of a slice is 0");
  const auto starts = text ? character_starts(text->bytes) : std::vector<std::size_t>();
  const auto length = static_cast<std::int64_t>(text ? starts.size() - 1 : list->items.size());
  const bool backwards = stride < 0;
  std::int64_t at = clamped(first, backwards ? length - 1 : 0, length, backwards);
  const std::int64_t stop = clamped(end, backwards ? -1 : length, length, backwards);
  stride = std::clamp<std::int64_t>(stride, -length - 1, length + 1);
  budget.steps(as_size(length));
  if (text && stride == 1) {
    const std::int64_t last = std::max(at, stop);
    const std::size_t from = starts[at], to = starts[last];
    budget.bytes(to - from);
    return text_value(part(*text, from, to));
  }
  Text letters;
  std::vector<Value> items;
  for (; backwards ? at > stop : at < stop; at += stride) {
    const auto place = as_size(at);
    if (text)
      append(letters, *text, starts[place], starts[place + 1]);
    else
      items.push_back(list->items[place]);
  }
  if (text) return text_value(std::move(letters));
  return list_value(std::move(items), list->kind);
}

}  // namespace holdfast::chat
