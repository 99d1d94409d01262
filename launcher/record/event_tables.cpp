#include "launcher/record/event_tables.hpp"

#include <fmt/format.h>

#include "launcher/record/events.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

// The type of a field, as the page calls it.
std::string type_of(const std::string&) { return "text"; }
std::string type_of(bool) { return "bool"; }
std::string type_of(double) { return "number"; }
std::string type_of(int) { return "integer"; }
std::string type_of(std::int64_t) { return "integer"; }
template <class Value>
std::string type_of(const std::optional<Value>&) {
  return type_of(Value()) + " or null";
}
std::string type_of(const std::vector<std::string>&) { return "list of text"; }
template <class Number>
std::string type_of(const std::vector<Number>&) {
  return "list of integers";
}
template <class Part>
std::string type_of(const std::map<std::string, Part>&) {
  return "object";
}
std::string type_of(const std::optional<events::LastRead>&) { return "object"; }

// What a missing field means.
std::string default_of(const std::string&) { return "empty"; }
std::string default_of(bool value) { return value ? "true" : "false"; }
std::string default_of(double value) { return fmt::format("{:g}", value); }
std::string default_of(int value) { return value < 0 ? fmt::format("−{}", -value) : std::to_string(value); }
template <class Value>
std::string default_of(const std::optional<Value>&) {
  return "none";
}
template <class Value>
std::string default_of(const std::vector<Value>&) {
  return "empty";
}

template <class Object, class Value>
std::string absent(const Field<Object, Value>& field) {
  if constexpr (requires(Value value) { default_of(value); })
    if (field.presence != Presence::required) return default_of(Object().*field.member);
  return "";
}

template <class Object, class Value>
std::string row(const Field<Object, Value>& field) {
  std::string type = type_of(Value());
  if (const std::string_view unit = field.unit; !unit.empty()) type += fmt::format(", {}", unit);
  if (const std::string value = absent(field); !value.empty()) type += fmt::format(" ({})", value);
  return fmt::format("| `{}` | {} | {} |\n", field.name, type, field.meaning);
}

constexpr std::string_view heading = "| Field | Type, unit (if absent) | Meaning |\n|---|---|---|\n";

template <class Object>
std::string table() {
  std::string text(heading);
  std::apply([&](const auto&... field) { ((text += row(field)), ...); }, Object::fields);
  return text;
}

/// Calls `visit` with a plain event of each kind.
template <std::size_t i = 0>
void each_known(const auto& visit) {
  using Candidate = std::variant_alternative_t<i, Event>;
  if constexpr (!std::is_same_v<Candidate, UnknownEvent>) {
    visit(Candidate());
    each_known<i + 1>(visit);
  }
}

std::string chapter(Chapter which, const char* title) {
  std::string text = fmt::format("\n### {}\n", title);
  each_known([&]<class Known>(const Known&) {
    if (Known::about.chapter == which)
      text += fmt::format("\n**`{}`**: {}.\n\n", Known::about.kind, Known::about.meaning) + table<Known>();
  });
  return text;
}

}  // namespace

std::string event_tables() {
  std::string envelope = table<Envelope>();
  envelope.insert(heading.size(), "| `event` | text | kind, below |\n");
  return "### Fields of every event\n\n" + envelope +
         "\n`step` is always the number of optimizer steps done. Where nothing else is said, that of an "
         "event is "
         "the highest that any\nrank of the attempt has reported. A number that is not finite is null. A "
         "field "
         "that may be absent is left out where it has the\nvalue in brackets, or was not written by older "
         "versions.\n" +
         chapter(Chapter::leaders, "Leaders") + chapter(Chapter::attempts, "Attempts") +
         chapter(Chapter::nodes, "Nodes") + chapter(Chapter::orders, "Checkpoints and orders");
}

}  // namespace holdfast::launcher
