// No event and no field is named here: object_of() writes, and Reader reads, what the list `fields` of a
// struct names. written() and read() choose by the type of the member: a struct with fields, an optional
// value, a map, a list, a text, a number. A number that is not finite is written as null, and read as NaN.
//
// What an older or newer version has written is read as far as possible: a field that is not required may be
// missing, keys that are not in the list are passed over, and an event of an unknown kind is kept as it is
// (UnknownEvent), with defaults for what its envelope lacks. A missing required field or a value of a wrong
// type or size throws Error, with the event, the field and what was found there.
#include "launcher/record/events.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

template <class T>
concept HasFields = requires {
  T::fields;
};

// --- writing ---

template <class Value>
json written(const Value& value);

template <HasFields Object>
json object_of(const Object& object) {
  json out = json::object();
  const auto add = [&](const auto& field) {
    const auto& value = object.*field.member;
    if (field.presence != Presence::if_set || value != Object().*field.member)
      out[field.name] = written(value);
  };
  std::apply([&](const auto&... field) { (add(field), ...); }, Object::fields);
  return out;
}

template <class Value>
json optional_value(const std::optional<Value>& value) {
  return value ? written(*value) : json(nullptr);
}
template <class Value>
json map_of(const std::map<std::string, Value>& values) {
  json out = json::object();
  for (const auto& [name, value] : values) out[name] = written(value);
  return out;
}

template <class Value>
json written(const Value& value) {
  if constexpr (HasFields<Value>)
    return object_of(value);
  else if constexpr (requires { value.has_value(); })
    return optional_value(value);
  else if constexpr (requires { typename Value::mapped_type; })
    return map_of(value);
  else if constexpr (std::is_floating_point_v<Value>)
    return std::isfinite(value) ? json(value) : json(nullptr);
  else
    return value;
}

// --- reading ---

std::string line(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// What was found in a field, for the message of an error.
std::string found(const json& value) {
  constexpr std::size_t enough = 60;
  std::string text = line(value);
  if (text.size() > enough) text = text.substr(0, enough) + "...";
  return text;
}

class Reader {
 public:
  Reader(const json& object, std::string of) : object_(object), of_(std::move(of)) {}

  template <HasFields Object>
  Object read() const {
    Object out;
    std::apply([&](const auto&... field) { (take(out, field), ...); }, Object::fields);
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Exit::runtime, "an event is malformed", of_ + ": " + why);
  }
  template <class Object, class Value>
  void take(Object& out, const Field<Object, Value>& field) const {
    const auto at = object_.find(field.name);
    if (at != object_.end())
      read(field.name, *at, out.*field.member);
    else if (field.presence == Presence::required)
      refuse(std::string(field.name) + " is missing");
  }
  void require(bool holds, const char* name, const json& value, const char* wanted) const {
    if (!holds) refuse(fmt::format("{} is {}, not {}", name, found(value), wanted));
  }

  void read(const char* name, const json& value, std::string& out) const {
    require(value.is_string(), name, value, "a text");
    out = value.get<std::string>();
  }
  void read(const char* name, const json& value, bool& out) const {
    require(value.is_boolean(), name, value, "true or false");
    out = value.get<bool>();
  }
  void read(const char* name, const json& value, double& out) const {
    require(value.is_number() || value.is_null(), name, value, "a number");
    out = value.is_null() ? std::nan("") : value.get<double>();
  }
  void read(const char* name, const json& value, std::int64_t& out) const {
    const bool fits =
        value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX);
    require(fits, name, value, "an integer");
    out = value.get<std::int64_t>();
  }
  void read(const char* name, const json& value, int& out) const {
    std::int64_t wide = 0;
    read(name, value, wide);
    require(wide >= std::numeric_limits<int>::min() && wide <= std::numeric_limits<int>::max(), name, value,
            "an integer of 32 bits");
    out = static_cast<int>(wide);
  }
  template <class Value>
  void read(const char* name, const json& value, std::optional<Value>& out) const {
    if (!value.is_null()) read(name, value, out.emplace());
  }
  template <class Value>
  void read(const char* name, const json& value, std::vector<Value>& out) const {
    if constexpr (std::is_same_v<Value, std::string>)
      if (value.is_string()) return read(name, value, out.emplace_back());
    require(value.is_array(), name, value, "a list");
    for (const json& element : value) read(name, element, out.emplace_back());
  }
  template <class Value>
  void read(const char* name, const json& value, std::map<std::string, Value>& out) const {
    require(value.is_object(), name, value, "an object");
    for (const auto& [key, element] : value.items()) read(key.c_str(), element, out[key]);
  }
  template <HasFields Value>
  void read(const char* name, const json& value, Value& out) const {
    require(value.is_object(), name, value, "an object");
    out = Reader(value, of_ + "." + name).read<Value>();
  }

  const json& object_;
  std::string of_;
};

/// Reads `object` as the alternative of `Event` that is called `kind`.
template <std::size_t i = 0>
Event event_called(const std::string& kind, const json& object) {
  using Candidate = std::variant_alternative_t<i, Event>;
  if constexpr (std::is_same_v<Candidate, UnknownEvent>) {
    return UnknownEvent{object};
  } else {
    if (kind == Candidate::about.kind) return Reader(object, kind).read<Candidate>();
    return event_called<i + 1>(kind, object);
  }
}

std::string kind_in(const json& object) {
  const auto kind = object.find("event");
  return kind != object.end() && kind->is_string() ? kind->get<std::string>() : "";
}

template <HasFields Known>
std::string kind(const Known&) {
  return Known::about.kind;
}
std::string kind(const UnknownEvent& event) { return kind_in(event.json); }

json json_of(const UnknownEvent& event) { return event.json; }
template <HasFields Known>
json json_of(const Known& event) {
  json out = object_of(event);
  out["event"] = Known::about.kind;
  return out;
}

}  // namespace

std::string kind_of(const Event& event) {
  return std::visit([](const auto& e) { return kind(e); }, event);
}

json to_json(const Event& event) {
  return std::visit([](const auto& e) { return json_of(e); }, event);
}

json to_json(const LogEntry& entry) {
  json out = to_json(entry.event);
  out.update(object_of(entry.envelope));
  return out;
}

Event event_from_json(const json& object) {
  if (!object.is_object())
    throw Error(Exit::runtime, "an event is malformed", found(object) + " is not an object");
  return event_called(kind_in(object), object);
}

LogEntry entry_from_json(const json& object) {
  LogEntry entry{{}, event_from_json(object)};
  if (!std::holds_alternative<UnknownEvent>(entry.event)) {
    entry.envelope = Reader(object, kind_of(entry.event)).read<Envelope>();
    return entry;
  }
  json completed = object_of(entry.envelope);
  completed.update(object);
  entry.envelope = Reader(completed, kind_of(entry.event)).read<Envelope>();
  return entry;
}

std::string line_of(const Event& event) { return line(to_json(event)); }
std::string line_of(const LogEntry& entry) { return line(to_json(entry)); }

}  // namespace holdfast::launcher
