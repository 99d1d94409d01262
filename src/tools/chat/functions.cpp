// What a template may call by name.
#include <algorithm>
#include <cstdio>
#include <ctime>

#include "src/base/as_size.hpp"
#include "src/tools/chat/builtins.hpp"
#include "src/tools/chat/characters.hpp"
#include "src/tools/chat/value_text.hpp"

namespace holdfast::chat {
namespace {

Value raise_exception(Arguments& arguments, Rendering& rendering) {
  const std::string words = to_text(arguments.need("message"), rendering.budget).bytes;
  throw Refusal("it says: " + words);
}

/// Jinja's sandbox allows as many.
constexpr std::uint64_t longest_range = 100000;

Value range(Arguments& arguments, Rendering& rendering) {
  std::int64_t first = 0, end = arguments.integer("stop", 0), step = 1;
  if (const auto second = arguments.take("stop")) {
    first = end;
    if (!is_integer(*second, end)) throw Refusal("range() needs integers, not " + kind_of(*second));
    step = arguments.integer("step", 1);
  }
  arguments.finish();
  if (step == 0) throw Refusal("the step of range() is 0");
  std::vector<Value> items;
  for (std::int64_t i = first; step > 0 ? i < end : i > end;) {
    rendering.budget.steps(1);
    items.emplace_back(i);
    if (items.size() > longest_range) throw Refusal("range() is longer than 100000");
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return list_value(std::move(items));
}

std::vector<Dict::Entry> entries_of(Arguments& arguments) {
  std::vector<Dict::Entry> entries;
  if (const auto first = arguments.take("")) {
    const auto* dict = as<Dict>(*first);
    if (!dict) throw Refusal("expected a mapping, not " + kind_of(*first));
    entries = dict->entries;
  }
  for (auto& [name, value] : arguments.rest_named())
    entries.emplace_back(std::make_shared<Text>(own_text(name)), std::move(value));
  arguments.finish();
  return entries;
}

Value dict(Arguments& arguments, Rendering& rendering) {
  auto entries = entries_of(arguments);
  rendering.budget.steps(entries.size());
  return dict_value(std::move(entries));
}

Value make_namespace(Arguments& arguments, Rendering& rendering) {
  auto entries = entries_of(arguments);
  rendering.budget.steps(entries.size() * entries.size() + 1);
  Namespace& made = rendering.namespaces.emplace_back();
  for (auto& [key, value] : entries) {
    if (key->bytes.starts_with('_')) throw Refusal("a name in a namespace begins with '_'");
    made.set(key->bytes, std::move(value));
  }
  return &made;
}

Value strftime_now(Arguments& arguments, Rendering& rendering) {
  const std::string format = arguments.text("format", "");
  arguments.finish();
  std::tm now{};
  int read = 0;
  const int fields =
      std::sscanf(rendering.now.c_str(), "%4d-%2d-%2d%n%*1[T ]%2d:%2d:%2d%n", &now.tm_year, &now.tm_mon,
                  &now.tm_mday, &read, &now.tm_hour, &now.tm_min, &now.tm_sec, &read);
  now.tm_year -= 1900;
  now.tm_mon -= 1;
  const std::tm wanted = now;
  // timegm() knows the day of the week, and moves what is no day of the calendar elsewhere.
  const std::time_t seconds = timegm(&now);
  if ((fields != 3 && fields != 6) || as_size(read) != rendering.now.size() || seconds == -1 ||
      now.tm_mday != wanted.tm_mday || now.tm_mon != wanted.tm_mon || now.tm_hour != wanted.tm_hour ||
      now.tm_min != wanted.tm_min || now.tm_sec != wanted.tm_sec)
    throw Refusal("\"now\" is '" + rendering.now + "' and must read like 2024-07-26 or 2024-07-26T12:30:00");
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const std::size_t flag = format.substr(i + 1).starts_with('-') ? 1 : 0;
    const char letter = i + 1 + flag < format.size() ? format[i + 1 + flag] : ' ';
    constexpr std::string_view letters = "aAbBdejHIkmMpSuwyYDFTR%";
    if (letters.find(letter) == std::string_view::npos)
      throw Refusal("strftime_now cannot write '" + format + "'");
    char buffer[64];
    const std::string one = format.substr(i, 2 + flag);
    out.append(buffer, std::strftime(buffer, sizeof(buffer), one.c_str(), &now));
    i += 1 + flag;
  }
  rendering.budget.bytes(out.size());
  return text_value(std::move(out));
}

constexpr GlobalFunction functions[] = {
    {"raise_exception", raise_exception}, {"range", range}, {"dict", dict}, {"namespace", make_namespace},
    {"strftime_now", strftime_now},
};

}  // namespace

const GlobalFunction* find_function(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(functions), std::end(functions), [&](const auto& f) { return f.name == name; });
  return found == std::end(functions) ? nullptr : found;
}

}  // namespace holdfast::chat
