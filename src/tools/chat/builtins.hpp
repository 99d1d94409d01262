#pragma once
// The filters, tests, methods and functions that templates may use, as tables. They behave as Jinja's and
// Python's.
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tools/chat/value.hpp"

namespace holdfast::chat {

/// What a call was given. take() in the order of the parameters, then finish().
class Arguments {
 public:
  Arguments(std::vector<Value> plain, std::vector<std::pair<std::string, Value>> named)
      : plain_(std::move(plain)), named_(std::move(named)) {}

  /// The next parameter, which may also have been given by its name.
  std::optional<Value> take(std::string_view name);
  Value need(std::string_view name);  ///< Refusal when it was not given
  std::string text(std::string_view name, std::string otherwise);
  std::int64_t integer(std::string_view name, std::int64_t otherwise);
  bool boolean(std::string_view name, bool otherwise);
  std::vector<Value> rest();  ///< what was given by place and not yet taken
  std::vector<std::pair<std::string, Value>> rest_named();
  void finish() const;  ///< Refusal when something was given that nobody took

 private:
  std::vector<Value> plain_;
  std::vector<std::pair<std::string, Value>> named_;
  std::size_t next_ = 0;
};

/// One rendering: what it may still do, what it made, and which day it is.
struct Rendering {
  Budget budget;
  std::deque<Namespace> namespaces;
  std::string now;  ///< "2024-07-26" or "2024-07-26T12:30:00"
};

struct NamedFilter {
  std::string_view name;
  Value (*run)(const Value& of, Arguments& arguments, Rendering& rendering);
};
struct NamedTest {
  std::string_view name;
  bool (*run)(const Value& of, Arguments& arguments, Rendering& rendering);
};
struct GlobalFunction {
  std::string_view name;
  Value (*run)(Arguments& arguments, Rendering& rendering);
};

/// Null when there is none of that name.
const NamedFilter* find_filter(std::string_view name);
const NamedTest* find_test(std::string_view name);
const GlobalFunction* find_function(std::string_view name);

/// Whether self.name is a method in Python, which then hides an entry of that name; not all can be called.
bool has_method(const Value& self, std::string_view name);
Value call_method(const Method& method, Arguments& arguments, Rendering& rendering);

/// of.name and of[key]. What is not there is undefined.
Value attribute_of(const Value& of, std::string_view name);
Value item_of(const Value& of, const Value& key);
/// of[first:end:step]; undefined or none: not given.
Value slice_of(const Value& of, const Value& first, const Value& end, const Value& step, Budget& budget);

/// Replaces all, or the first `most` where it is not negative. Origins go along.
Text replaced(const Text& text, const Text& old, const Text& fresh, std::int64_t most, Budget& budget);

}  // namespace holdfast::chat
