// Filters that make text.
#include <algorithm>

#include "src/tools/chat/characters.hpp"
#include "src/tools/chat/filters.hpp"
#include "src/tools/chat/value_text.hpp"

namespace holdfast::chat::filters {
namespace {

/// What an indent is made of: a number of spaces, or text.
std::string indention(const std::optional<Value>& width, std::int64_t otherwise) {
  std::int64_t spaces = otherwise;
  if (width) {
    if (const auto* text = as<Text>(*width)) return text->bytes;
    if (!is_integer(*width, spaces)) throw Refusal("an indent is a number or a string");
  }
  if (spaces > 1000) throw Refusal("an indent of more than 1000");
  return std::string(std::max<std::int64_t>(spaces, 0), ' ');
}

}  // namespace

Value trim(const Value& of, Arguments& arguments, Rendering& rendering) {
  const auto chars = arguments.take("chars");
  arguments.finish();
  const Text text = to_text(of, rendering.budget);
  const auto* wanted = chars ? as<Text>(*chars) : nullptr;
  if (chars && !wanted && !is_none(*chars)) throw Refusal("'chars' must be a string");
  std::string_view letters;
  if (wanted) letters = wanted->bytes;
  rendering.budget.steps(1 + text.bytes.size() / 16 * letters.size() / 16);
  const auto [first, end] = stripped(text.bytes, wanted ? &letters : nullptr, true, true);
  return text_value(part(text, first, end));
}

Value string(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  return text_value(to_text(of, rendering.budget));
}

Value upper(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  return text_value(chat::upper(to_text(of, rendering.budget).bytes));
}

Value lower(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  return text_value(chat::lower(to_text(of, rendering.budget).bytes));
}

Value capitalize(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  return text_value(capitalized(to_text(of, rendering.budget).bytes));
}

/// Unlike str.title() it begins words only behind spaces, hyphens and opening brackets.
Value title(const Value& of, Arguments& arguments, Rendering& rendering) {
  arguments.finish();
  const std::string text = to_text(of, rendering.budget).bytes;
  std::string out;
  bool in_word = false;
  std::size_t first = 0;
  const auto flush = [&](std::size_t end) {
    if (in_word)
      out += capitalized(std::string_view(text).substr(first, end - first));
    else
      out += text.substr(first, end - first);
    first = end;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t here = at;
    const char32_t c = next_character(text, at);
    const bool between = is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                                         std::string_view::npos);
    if (between == in_word) flush(here);
    in_word = !between;
  }
  flush(text.size());
  return text_value(std::move(out));
}

Value replace(const Value& of, Arguments& arguments, Rendering& rendering) {
  const Text old = to_text(arguments.need("old"), rendering.budget);
  const Text fresh = to_text(arguments.need("new"), rendering.budget);
  const auto count = arguments.take("count");
  arguments.finish();
  std::int64_t most = -1;
  if (count && !is_none(*count) && !is_integer(*count, most)) throw Refusal("'count' must be an integer");
  return text_value(replaced(to_text(of, rendering.budget), old, fresh, most, rendering.budget));
}

Value indent(const Value& of, Arguments& arguments, Rendering& rendering) {
  const std::string space = indention(arguments.take("width"), 4);
  const bool first = arguments.boolean("first", false), blank = arguments.boolean("blank", false);
  arguments.finish();
  if (!as<Text>(of)) throw Refusal("only a string is indented, not " + kind_of(of));
  Text text = to_text(of, rendering.budget);
  text.bytes += '\n';
  Text out;
  std::size_t line = 0;
  for (const auto& [begin, end] : lines_of(text.bytes)) {
    rendering.budget.bytes(space.size() + end - begin + 1);
    if (line > 0) append(out, "\n");
    if (line == 0 ? first : blank || end > begin) append(out, space);
    append(out, text, begin, end);
    ++line;
  }
  return text_value(std::move(out));
}

Value join(const Value& of, Arguments& arguments, Rendering& rendering) {
  const Text between = to_text(arguments.take("d").value_or(text_value(std::string())), rendering.budget);
  const auto attribute = arguments.take("attribute");
  arguments.finish();
  Text out;
  bool first = true;
  const auto list = items_of(of, rendering.budget);
  for (const Value& item : list->items) {
    rendering.budget.steps(1);
    rendering.budget.bytes(between.bytes.size());
    if (!first) append(out, between);
    first = false;
    append(out, to_text(attribute ? path_of(item, *attribute) : item, rendering.budget));
  }
  return text_value(std::move(out));
}

Value tojson(const Value& of, Arguments& arguments, Rendering& rendering) {
  JsonStyle style;
  style.ascii = arguments.boolean("ensure_ascii", false);
  if (const auto indent = arguments.take("indent"); indent && !is_none(*indent)) {
    style.indent = 0;
    if (!is_integer(*indent, *style.indent)) throw Refusal("'indent' must be an integer");
    style.between_items = ",";
  }
  if (const auto separators = arguments.take("separators"); separators && !is_none(*separators)) {
    const auto* pair = as<List>(*separators);
    const auto text_of = [&](std::size_t i) {
      return pair && pair->items.size() == 2 ? as<Text>(pair->items[i]) : nullptr;
    };
    if (!text_of(0) || !text_of(1)) throw Refusal("'separators' must be two strings");
    style.between_items = text_of(0)->bytes;
    style.between_key_and_value = text_of(1)->bytes;
  }
  style.sorted = arguments.boolean("sort_keys", false);
  arguments.finish();
  return text_value(to_json(of, style, rendering.budget));
}

}  // namespace holdfast::chat::filters

namespace holdfast::chat {

Text replaced(const Text& text, const Text& old, const Text& fresh, std::int64_t most, Budget& budget) {
  Text out;
  std::int64_t done = 0;
  std::size_t at = 0;
  budget.bytes(text.bytes.size());
  while (most < 0 || done < most) {
    const std::size_t found = text.bytes.find(old.bytes, at);
    if (found == std::string::npos) break;
    budget.steps(1);
    budget.bytes(fresh.bytes.size());
    // Nothing is found before every character and at the end.
    append(out, text, at, found);
    append(out, fresh);
    at = found + old.bytes.size();
    ++done;
    if (old.bytes.empty()) {
      if (at >= text.bytes.size()) return out;
      std::size_t next = at;
      next_character(text.bytes, next);
      append(out, text, at, next);
      at = next;
    }
  }
  append(out, text, at, text.bytes.size());
  return out;
}

}  // namespace holdfast::chat
