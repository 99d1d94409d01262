#pragma once
// What a template computes with: Python's values, as far as chat templates need them. Values do not change
// once they are made, but for namespaces.
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/tools/chat/text.hpp"

namespace holdfast::chat {

/// What a template, or what it was given, does wrong. Whoever knows the place makes an Error of it.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Work that a template may still do. Templates come from anywhere and can loop; everything that takes time
/// or memory is paid for here first.
class Budget {
 public:
  Budget(std::int64_t steps, std::int64_t bytes) : steps_(steps), bytes_(bytes) {}
  void steps(std::size_t count) { take(steps_, count, "it runs on without end"); }
  void bytes(std::size_t count) { take(bytes_, count, "it makes too much text"); }

 private:
  static void take(std::int64_t& left, std::size_t count, const char* why) {
    if (count > as_size(left)) throw Refusal(why);
    left -= static_cast<std::int64_t>(count);
  }
  std::int64_t steps_, bytes_;
};

struct List;
struct Dict;
struct Loop;
struct Method;
struct Namespace;
struct MacroStatement;
struct GlobalFunction;

struct Undefined {
  std::string name;  ///< for messages: what was not there
};
struct None {};

using Value =
    std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                 std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<const Loop>,
                 std::shared_ptr<const Method>, Namespace*, const MacroStatement*, const GlobalFunction*>;

/// Values inside values, at most. Deeper ones could not be destroyed without a deep stack.
constexpr int deepest_value = 100;

struct List {
  /// `view`: what dict.items() gives; `once`: a generator. Python lets less be done with those, and says
  /// that the latter are true even when they are empty.
  enum class Kind { list, tuple, view, once };
  std::vector<Value> items;
  Kind kind = Kind::list;
  int depth = 1;
};

struct Dict {
  using Entry = std::pair<std::shared_ptr<const Text>, Value>;
  std::vector<Entry> entries;
  std::unordered_map<std::string_view, std::size_t> places;
  int depth = 1;
  const Value* find(std::string_view key) const;
};

/// The variable `loop` in one round.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
};

/// A method that was named and not yet called.
struct Method {
  Value self;
  std::string name;
};

/// What namespace() makes. It belongs to the rendering, so that two of them may hold each other.
struct Namespace {
  std::vector<std::pair<std::string, Value>> entries;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

Value text_value(Text text);
Value text_value(std::string bytes);  ///< of unknown origin
Value list_value(std::vector<Value> items, List::Kind kind = List::Kind::list);
/// A key that comes twice has its first place and its last value.
Value dict_value(std::vector<Dict::Entry> entries);
Value loop_value(std::shared_ptr<const List> items, std::size_t index);
Value method_value(Value self, std::string_view name);
Value from_json(const nlohmann::ordered_json& json, Budget& budget);

template <class T>
const T* as(const Value& value) {
  const auto* held = std::get_if<std::shared_ptr<const T>>(&value);
  return held ? held->get() : nullptr;
}
inline bool is_undefined(const Value& value) { return std::holds_alternative<Undefined>(value); }
inline bool is_none(const Value& value) { return std::holds_alternative<None>(value); }

/// "a string", "a list": for messages.
std::string kind_of(const Value& value);
bool truth(const Value& value);
bool equal(const Value& a, const Value& b, Budget& budget);
/// a < b of numbers or strings; Refusal for others.
bool less(const Value& a, const Value& b);
/// `item in container`.
bool contains(const Value& container, const Value& item, Budget& budget);
/// What a loop over the value visits: items, keys, characters.
std::shared_ptr<const List> items_of(const Value& value, Budget& budget);
/// len(); Refusal when it has none.
std::size_t length_of(const Value& value);

/// bool counts as an integer, as in Python.
bool is_integer(const Value& value, std::int64_t& number);
bool is_number(const Value& value, double& number);

}  // namespace holdfast::chat
