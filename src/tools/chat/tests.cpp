// What may stand behind `is`.
#include <algorithm>
#include <array>

#include "src/tools/chat/builtins.hpp"

namespace holdfast::chat {
namespace {

template <bool (*plain)(const Value&)>
bool simple(const Value& of, Arguments& arguments, Rendering&) {
  arguments.finish();
  return plain(of);
}

bool defined(const Value& v) { return !is_undefined(v); }
bool undefined(const Value& v) { return is_undefined(v); }
bool none(const Value& v) { return is_none(v); }
bool string(const Value& v) { return as<Text>(v); }
bool mapping(const Value& v) { return as<Dict>(v); }
bool iterable(const Value& v) { return is_undefined(v) || as<Text>(v) || as<Dict>(v) || as<List>(v); }
bool boolean(const Value& v) { return std::holds_alternative<bool>(v); }
bool is_true(const Value& v) { return boolean(v) && std::get<bool>(v); }
bool is_false(const Value& v) { return boolean(v) && !std::get<bool>(v); }
bool integer(const Value& v) { return std::holds_alternative<std::int64_t>(v); }
bool floating(const Value& v) { return std::holds_alternative<double>(v); }
bool number(const Value& v) { return boolean(v) || integer(v) || floating(v); }
bool callable(const Value& v) {  // in Python undefined is: calling it is an error of its own
  return is_undefined(v) || as<Method>(v) || v.index() > Value(static_cast<Namespace*>(nullptr)).index();
}
bool sequence(const Value& v) {
  const auto* list = as<List>(v);
  return list ? list->kind <= List::Kind::tuple : is_undefined(v) || as<Text>(v) || as<Dict>(v);
}

std::int64_t remainder(const Value& of, std::int64_t by) {
  std::int64_t number = 0;
  if (!is_integer(of, number)) throw Refusal(kind_of(of) + " is no integer");
  if (by == 0) throw Refusal("division by 0");
  return by == -1 ? 0 : number % by;
}

bool even(const Value& of, Arguments& arguments, Rendering&) {
  arguments.finish();
  return remainder(of, 2) == 0;
}
bool odd(const Value& of, Arguments& arguments, Rendering&) {
  arguments.finish();
  return remainder(of, 2) != 0;
}
bool divisible_by(const Value& of, Arguments& arguments, Rendering&) {
  const std::int64_t by = arguments.integer("num", 0);
  arguments.finish();
  return remainder(of, by) == 0;
}
bool equal_to(const Value& of, Arguments& arguments, Rendering& rendering) {
  const Value other = arguments.need("other");
  arguments.finish();
  return equal(of, other, rendering.budget);
}
bool not_equal(const Value& of, Arguments& arguments, Rendering& rendering) {
  return !equal_to(of, arguments, rendering);
}
bool below(const Value& of, Arguments& arguments, Rendering&) {
  const Value other = arguments.need("other");
  arguments.finish();
  return less(of, other);
}
bool above(const Value& of, Arguments& arguments, Rendering&) {
  const Value other = arguments.need("other");
  arguments.finish();
  return less(other, of);
}
bool at_most(const Value& of, Arguments& arguments, Rendering& rendering) {
  const Value other = arguments.need("other");
  arguments.finish();
  return less(of, other) || equal(of, other, rendering.budget);
}
bool at_least(const Value& of, Arguments& arguments, Rendering& rendering) {
  const Value other = arguments.need("other");
  arguments.finish();
  return less(other, of) || equal(of, other, rendering.budget);
}
bool in(const Value& of, Arguments& arguments, Rendering& rendering) {
  const Value container = arguments.need("seq");
  arguments.finish();
  return contains(container, of, rendering.budget);
}

constexpr NamedTest tests[] = {
    {"defined", simple<defined>},
    {"undefined", simple<undefined>},
    {"none", simple<none>},
    {"string", simple<string>},
    {"mapping", simple<mapping>},
    {"iterable", simple<iterable>},
    {"sequence", simple<sequence>},
    {"boolean", simple<boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"integer", simple<integer>},
    {"float", simple<floating>},
    {"number", simple<number>},
    {"callable", simple<callable>},
    {"even", even},
    {"odd", odd},
    {"divisibleby", divisible_by},
    {"in", in},
    {"equalto", equal_to},
    {"eq", equal_to},
    {"==", equal_to},
    {"ne", not_equal},
    {"!=", not_equal},
    {"lt", below},
    {"lessthan", below},
    {"<", below},
    {"gt", above},
    {"greaterthan", above},
    {">", above},
    {"le", at_most},
    {"<=", at_most},
    {"ge", at_least},
    {">=", at_least},
};

}  // namespace

const NamedTest* find_test(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(tests), std::end(tests), [&](const auto& t) { return t.name == name; });
  return found == std::end(tests) ? nullptr : found;
}

}  // namespace holdfast::chat
