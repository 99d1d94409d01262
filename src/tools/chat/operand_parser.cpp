// The second half of ExpressionParser: what stands between operators. primary() reads a literal, a name or a
// bracket; postfixes() adds subscripts and calls; unary(), which is in expression_parser.cpp, then adds
// filters and tests. A test may have one argument without brackets, as in `is divisibleby 3`.
//
// Filters and tests are looked up here, so one that is not understood is refused with its place before any
// template runs. Variables, functions and methods are known only when it runs. Refused are also a number of
// more than 63 bits, and arguments that are unpacked with * or **.
//
// Every make() is told the depth of the deepest tree below it, from which the bound on trees follows.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "src/tools/chat/expression_parser.hpp"

namespace holdfast::chat {
namespace {

using Kind = Token::Kind;

int depth_of(const CallArguments& arguments) {
  int depth = 0;
  for (const Branch& each : arguments.plain) depth = std::max(depth, depth_of(each));
  for (const auto& each : arguments.named) depth = std::max(depth, depth_of(each.second));
  return depth;
}

}  // namespace

Branch ExpressionParser::literal(Position at, Value value) { return make(at, Literal{std::move(value)}, 0); }

Branch ExpressionParser::primary() {
  const Position at = current().at;
  if (this->at(Kind::name)) {
    const std::string name = next().text;
    if (name == "true" || name == "True") return literal(at, true);
    if (name == "false" || name == "False") return literal(at, false);
    if (name == "none" || name == "None") return literal(at, None{});
    return make(at, Name{name}, 0);
  }
  if (this->at(Kind::string)) {
    std::string text;
    while (this->at(Kind::string)) text += next().text;
    return literal(at, text_value(own_text(std::move(text))));
  }
  if (this->at(Kind::integer) || this->at(Kind::real)) {
    const Token token = next();
    const char *first = token.text.data(), *end = first + token.text.size();
    std::int64_t integer = 0;
    double real = 0;
    if (token.kind == Kind::real) {
      // Beyond the largest and the smallest number lie infinity and 0.
      if (std::from_chars(first, end, real).ec != std::errc()) real = std::strtod(first, nullptr);
      return literal(at, real);
    }
    const auto read = std::from_chars(first, end, integer);
    if (read.ec != std::errc() || read.ptr != end) refuse(at, "this number is too large");
    return literal(at, integer);
  }
  if (at_sign("(")) return parenthesis();
  if (at_sign("[")) return list();
  if (at_sign("{")) return dict();
  unexpected("an expression");
}

Branch ExpressionParser::parenthesis() {
  const Position at = next().at;
  if (skip_sign(")")) return make(at, ListDisplay{{}, true}, 0);
  Branch inside = tuple();
  expect_sign(")");
  return inside;
}

Branch ExpressionParser::list() {
  const Position at = next().at;
  ListDisplay display;
  int below = 0;
  while (!at_sign("]")) {
    if (!display.items.empty()) {
      expect_sign(",");
      if (at_sign("]")) break;
    }
    display.items.push_back(expression());
    below = std::max(below, depth_of(display.items.back()));
  }
  next();
  return make(at, std::move(display), below);
}

Branch ExpressionParser::dict() {
  const Position at = next().at;
  DictDisplay display;
  int below = 0;
  while (!at_sign("}")) {
    if (!display.entries.empty()) {
      expect_sign(",");
      if (at_sign("}")) break;
    }
    Branch key = expression();
    expect_sign(":");
    Branch value = expression();
    below = std::max({below, depth_of(key), depth_of(value)});
    display.entries.emplace_back(std::move(key), std::move(value));
  }
  next();
  return make(at, std::move(display), below);
}

Branch ExpressionParser::postfixes(Branch of) {
  while (true) {
    if (at_sign(".") || at_sign("["))
      of = subscript(std::move(of));
    else if (at_sign("("))
      of = call(std::move(of));
    else
      return of;
  }
}

Branch ExpressionParser::subscript(Branch of) {
  const Position at = current().at;
  int below = depth_of(of);
  if (next().text == ".") {
    if (this->at(Kind::integer)) {
      Branch key = primary();
      return make(at, Item{std::move(of), std::move(key)}, below);
    }
    return make(at, Attribute{std::move(of), expect_name()}, below);
  }
  Branch bounds[3];
  int colons = 0;
  while (!at_sign("]")) {
    if (at_sign(":") && colons < 2) {
      next();
      ++colons;
      continue;
    }
    if (bounds[colons]) unexpected("']'");
    bounds[colons] = expression();
    below = std::max(below, depth_of(bounds[colons]));
  }
  if (colons == 0 && !bounds[0]) unexpected("what to take");
  next();
  if (colons == 0) return make(at, Item{std::move(of), std::move(bounds[0])}, below);
  return make(at, Slice{std::move(of), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])},
              below);
}

Branch ExpressionParser::filters(Branch of) {
  while (at_sign("|")) of = filter(std::move(of));
  return of;
}

Branch ExpressionParser::filter(Branch of) {
  next();
  const Position at = current().at;
  const std::string name = expect_name();
  const NamedFilter* filter = find_filter(name);
  if (!filter) refuse(at, "the filter '" + name + "' is not understood");
  CallArguments given;
  if (at_sign("(")) given = arguments();
  const int below = std::max(depth_of(of), depth_of(given));
  return make(at, Filtered{std::move(of), filter, std::move(given)}, below);
}

Branch ExpressionParser::test(Branch of) {
  next();
  const bool negated = skip(Kind::name, "not");
  const Position at = current().at;
  const std::string name = expect_name();
  const NamedTest* test = find_test(name);
  if (!test) refuse(at, "the test '" + name + "' is not understood");
  CallArguments given;
  const bool word =
      this->at(Kind::name) && current().text != "else" && current().text != "or" && current().text != "and";
  if (at_sign("(")) {
    given = arguments();
  } else if (word || this->at(Kind::string) || this->at(Kind::integer) || this->at(Kind::real) ||
             at_sign("[") || at_sign("{")) {
    if (this->at(Kind::name, "is")) unexpected("one test at a time");
    given.plain.push_back(postfixes(primary()));
  }
  const int below = std::max(depth_of(of), depth_of(given));
  Branch tested = make(at, Tested{std::move(of), test, std::move(given)}, below);
  return negated ? make(at, Not{std::move(tested)}, below + 1) : std::move(tested);
}

Branch ExpressionParser::call(Branch callee) {
  const Position at = current().at;
  CallArguments given = arguments();
  const int below = std::max(depth_of(callee), depth_of(given));
  return make(at, Call{std::move(callee), std::move(given)}, below);
}

CallArguments ExpressionParser::arguments() {
  expect_sign("(");
  CallArguments given;
  while (!at_sign(")")) {
    if (!given.plain.empty() || !given.named.empty()) {
      expect_sign(",");
      if (at_sign(")")) break;
    }
    if (at_sign("*") || at_sign("**"))
      refuse(current().at, "arguments from a list or mapping are not understood");
    if (at(Kind::name) && tokens_[at_ + 1].kind == Kind::sign && tokens_[at_ + 1].text == "=") {
      std::string name = next().text;
      next();
      given.named.emplace_back(std::move(name), expression());
    } else {
      if (!given.named.empty()) unexpected("a named argument");
      given.plain.push_back(expression());
    }
  }
  next();
  return given;
}

}  // namespace holdfast::chat
