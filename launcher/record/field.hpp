#pragma once
// A field of an event: its name in JSON, the member that holds it, and what docs/run-directory.md says of it.
// Every event has one list of them (events.hpp); writing, reading and the page walk that list.

namespace holdfast::launcher {

enum class Presence {
  required,  ///< always written; an event without it is malformed
  expected,  ///< always written; what older versions wrote may lack it, and it then reads as its default
  if_set     ///< left out where it has its default, and then reads as it
};

template <class Object, class Value>
struct Field {
  const char* name;
  Value Object::*member;
  const char* meaning;
  const char* unit;
  Presence presence;
};

template <class Object, class Value>
constexpr Field<Object, Value> required(const char* name, Value Object::*member, const char* meaning = "",
                                        const char* unit = "") {
  return {name, member, meaning, unit, Presence::required};
}
template <class Object, class Value>
constexpr Field<Object, Value> expected(const char* name, Value Object::*member, const char* meaning = "",
                                        const char* unit = "") {
  return {name, member, meaning, unit, Presence::expected};
}
template <class Object, class Value>
constexpr Field<Object, Value> if_set(const char* name, Value Object::*member, const char* meaning = "",
                                      const char* unit = "") {
  return {name, member, meaning, unit, Presence::if_set};
}

}  // namespace holdfast::launcher
