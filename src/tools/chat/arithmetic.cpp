#include <cmath>

#include "src/base/as_size.hpp"

#include "src/tools/chat/evaluator.hpp"

namespace holdfast::chat {
namespace {

constexpr const char* too_large = "an integer has more than 63 bits";

Value of_integers(std::string_view sign, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool over = false;
  if (sign == "+") over = __builtin_add_overflow(a, b, &out);
  if (sign == "-") over = __builtin_sub_overflow(a, b, &out);
  if (sign == "*") over = __builtin_mul_overflow(a, b, &out);
  if (sign == "//" || sign == "%") {
    if (b == 0) throw Refusal("division by 0");
    if (b == -1) {
      over = sign == "//" && __builtin_sub_overflow(std::int64_t{0}, a, &out);
    } else {
      // Python rounds down, C++ towards 0.
      const bool down = a % b != 0 && (a % b < 0) != (b < 0);
      out = sign == "//" ? a / b - (down ? 1 : 0) : a % b + (down ? b : 0);
    }
  }
  if (sign == "**") {
    out = 1;
    if (a == 0 || a == 1)
      out = b == 0 || a == 1;
    else if (a == -1)
      out = b % 2 == 0 ? 1 : -1;
    else
      for (std::int64_t i = 0; i < b && !over; ++i) over = __builtin_mul_overflow(out, a, &out);
  }
  if (over) throw Refusal(too_large);
  return out;
}

Value of_reals(std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") {
    if ((a == 0 && b < 0) || (a < 0 && b != std::floor(b))) throw Refusal("this power is no real number");
    return std::pow(a, b);
  }
  if (b == 0) throw Refusal("division by 0");
  if (sign == "/") return a / b;
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  return sign == "%" ? Value(remainder) : Value(std::floor((a - remainder) / b + 0.5));
}

Value repeated(const Value& value, std::int64_t times, Budget& budget) {
  const auto* text = as<Text>(value);
  const auto* list = as<List>(value);
  const auto count = as_size(std::max<std::int64_t>(times, 0));
  const std::size_t size = text ? text->bytes.size() : list->items.size();
  std::size_t all = 0;
  if (__builtin_mul_overflow(size, count, &all) || all > as_size(INT64_MAX)) all = INT64_MAX;
  text ? budget.bytes(all) : budget.steps(all);
  Text letters;
  std::vector<Value> items;
  for (std::size_t i = 0; i < count && size > 0; ++i) {
    if (text)
      append(letters, *text);
    else
      items.insert(items.end(), list->items.begin(), list->items.end());
  }
  return text ? text_value(std::move(letters)) : list_value(std::move(items), list->kind);
}

Value sum_of_lists(const List& left, const List& right, Budget& budget) {
  if (left.kind != right.kind || left.kind > List::Kind::tuple)
    throw Refusal("these lists cannot be joined with +");
  budget.steps(left.items.size() + right.items.size());
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return list_value(std::move(items), left.kind);
}

}  // namespace

Value arithmetic(std::string_view sign, const Value& left, const Value& right, Budget& budget) {
  std::int64_t i = 0, j = 0;
  const bool whole_left = is_integer(left, i), whole_right = is_integer(right, j);
  if (whole_left && whole_right && sign != "/" && (sign != "**" || j >= 0)) return of_integers(sign, i, j);
  double x = 0, y = 0;
  if (is_number(left, x) && is_number(right, y)) return of_reals(sign, x, y);
  const auto *s = as<Text>(left), *t = as<Text>(right);
  if (sign == "+" && s && t) {
    budget.bytes(s->bytes.size() + t->bytes.size());
    Text sum = *s;
    append(sum, *t);
    return text_value(std::move(sum));
  }
  const auto *a = as<List>(left), *b = as<List>(right);
  if (sign == "+" && a && b) return sum_of_lists(*a, *b, budget);
  const auto repeats = [](const Text* text, const List* list) {
    return text || (list && list->kind <= List::Kind::tuple);
  };
  if (sign == "*" && repeats(s, a) && whole_right) return repeated(left, j, budget);
  if (sign == "*" && repeats(t, b) && whole_left) return repeated(right, i, budget);
  throw Refusal("'" + std::string(sign) + "' between " + kind_of(left) + " and " + kind_of(right));
}

}  // namespace holdfast::chat
