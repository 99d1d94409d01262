#pragma once
// Inside the codec: what a message's list of fields (message_fields.hpp) is walked by. FieldWriter makes a
// JSON object of it. FieldReader fills it in, and refuses whatever is missing, of another type or out of
// bounds.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "src/base/as_size.hpp"

namespace holdfast::control {

using nlohmann::json;

/// Why a message is not accepted; names the field.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bounds, one type for each kind of value. An object has none of its own: its fields do.
struct Range {
  std::int64_t low, high;
};
struct RealRange {
  double low, high;
};
struct Flag {};
struct Text {
  std::size_t max_bytes;
};
/// In a program's own words: cut to `max_bytes` when written. A byte that is not UTF-8 is then replaced by
/// U+FFFD, which is three, so that a reader accepts three times as much.
struct Words {
  std::size_t max_bytes;
};
/// Printable ASCII in an array with a zero at its end.
struct Ascii {};
/// Any positive number of 64 bits.
struct NonZero {};
/// A number, or null for one that is not finite, for which JSON has no spelling.
struct Measurement {};
template <std::size_t n>
struct Names {
  const std::array<const char*, n>& names;  ///< by the value of the enumerator
};
template <std::size_t n>  // which clang 14 does not deduce
Names(const std::array<const char*, n>&)->Names<n>;
struct Object {};
struct OptionalObject {};  ///< or null
template <class Bounds>
struct List {
  std::size_t min, max;
  Bounds element;
};

class FieldWriter {
 public:
  template <class Value, class Bounds>
  void operator()(const char* name, const Value& value, const Bounds& bounds) {
    object_[name] = written(value, bounds);
  }
  json take() { return std::move(object_); }

 private:
  template <class Value, class Bounds>
  static json written(const Value& value, const Bounds&) {
    return value;
  }
  static json written(const std::string& text, Words bounds) { return text.substr(0, bounds.max_bytes); }
  static json written(const char* text, Ascii) { return text; }
  static json written(double value, Measurement) {
    return std::isfinite(value) ? json(value) : json(nullptr);
  }
  template <class Enum, std::size_t n>
  static json written(Enum value, Names<n> bounds) {
    return bounds.names[as_size(value)];
  }
  template <class Value>
  static json written(const Value& value, Object) {
    FieldWriter inner;
    fields(inner, value);
    return inner.take();
  }
  template <class Value>
  static json written(const std::optional<Value>& value, OptionalObject) {
    return value ? written(*value, Object{}) : json(nullptr);
  }
  template <class Value, class Bounds>
  static json written(const std::vector<Value>& values, const List<Bounds>& bounds) {
    json all = json::array();
    for (const auto& value : values) all.push_back(written(value, bounds.element));
    return all;
  }

  json object_ = json::object();
};

class FieldReader {
 public:
  explicit FieldReader(const json& object) : object_(object) {}

  template <class Value, class Bounds>
  void operator()(const char* name, Value& value, const Bounds& bounds) {
    const auto it = object_.find(name);
    if (it == object_.end()) throw Refused(std::string(name) + " is missing");
    name_ = name;
    read(*it, value, bounds);
  }

 private:
  [[noreturn]] void refuse(const char* why) const { throw Refused(std::string(name_) + " " + why); }
  void require(bool holds, const char* why) const {
    if (!holds) refuse(why);
  }

  template <class Integer>
  void read(const json& field, Integer& value, Range bounds) const {
    require(
        field.is_number_integer() && !(field.is_number_unsigned() && field.get<std::uint64_t>() > INT64_MAX),
        "is not a whole number");
    const auto number = field.get<std::int64_t>();
    require(number >= bounds.low && number <= bounds.high, "is out of bounds");
    value = static_cast<Integer>(number);
  }
  void read(const json& field, double& value, RealRange bounds) const {
    require(field.is_number(), "is not a number");
    value = field.get<double>();
    require(value >= bounds.low && value <= bounds.high, "is out of bounds");
  }
  void read(const json& field, double& value, Measurement) const {
    require(field.is_number() || field.is_null(), "is not a number");
    value = field.is_null() ? std::nan("") : field.get<double>();
  }
  void read(const json& field, bool& value, Flag) const {
    require(field.is_boolean(), "is not true or false");
    value = field.get<bool>();
  }
  void read(const json& field, std::string& value, Text bounds) const {
    require(field.is_string(), "is not a text");
    value = field.get<std::string>();
    require(value.size() <= bounds.max_bytes, "is too long a text");
  }
  void read(const json& field, std::string& value, Words bounds) const {
    read(field, value, Text{3 * bounds.max_bytes});
  }
  template <std::size_t n>
  void read(const json& field, char (&value)[n], Ascii) const {
    std::string text;
    read(field, text, Text{n - 1});
    for (const char c : text) require(c >= ' ' && c <= '~', "has characters that are not ASCII");
    text.copy(value, n - 1);
  }
  void read(const json& field, std::uint64_t& value, NonZero) const {
    require(field.is_number_unsigned() && field.get<std::uint64_t>() > 0, "is not a positive whole number");
    value = field.get<std::uint64_t>();
  }
  template <class Enum, std::size_t n>
  void read(const json& field, Enum& value, Names<n> bounds) const {
    require(field.is_string(), "is not a text");
    const auto& name = field.get_ref<const std::string&>();
    for (std::size_t i = 0; i < n; ++i)
      if (name == bounds.names[i]) return void(value = static_cast<Enum>(i));
    refuse("is unknown");
  }
  template <class Value>
  void read(const json& field, Value& value, Object) const {
    require(field.is_object(), "is not an object");
    FieldReader inner(field);
    fields(inner, value);
  }
  template <class Value>
  void read(const json& field, std::optional<Value>& value, OptionalObject) const {
    if (!field.is_null()) read(field, value.emplace(), Object{});
  }
  template <class Value, class Bounds>
  void read(const json& field, std::vector<Value>& values, const List<Bounds>& bounds) const {
    require(field.is_array(), "is not a list");
    require(field.size() >= bounds.min && field.size() <= bounds.max, "is a list of a length that cannot be");
    for (const json& element : field) read(element, values.emplace_back(), bounds.element);
  }

  const json& object_;
  const char* name_ = "";
};

}  // namespace holdfast::control
