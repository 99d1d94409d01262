// A recursive descent: each level of precedence has a function, which reads its operands by the next tighter
// one. From the loosest to the tightest these are tuple(), expression() for if-else, alternative() for or,
// conjunction() for and, negation(), comparison(), sum(), joined() for ~, product(), power() and unary().
// Binary operators are left-associative, ** too, as in Jinja; a chain of comparisons is one node. unary()
// reads the operand itself by the functions of operand_parser.cpp.
//
// Deeper bounds how deep calls lie in calls, and make() how deep a tree gets, which a long sum makes deep
// without such calls. The stack for computing and destroying a tree is thus bounded. The last token is `end`,
// and next() stays there, so nothing reads behind the tokens. What does not fit is refused with its place.
#include "src/tools/chat/expression_parser.hpp"

#include <algorithm>
#include <array>

#include "src/base/error.hpp"

namespace holdfast::chat {
namespace {

using Kind = Token::Kind;

std::string shown(const Token& token) {
  switch (token.kind) {
    case Kind::end:
      return "the end of the template";
    case Kind::print_end:
      return "'}}'";
    case Kind::block_end:
      return "'%}'";
    case Kind::string:
      return "a string";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace

ExpressionParser::Deeper::Deeper(ExpressionParser& parser) : parser_(parser) {
  if (parser_.depth_ >= deepest) refuse(parser_.current().at, "it is nested too deep");
  ++parser_.depth_;
}

bool ExpressionParser::skip(Kind kind, std::string_view text) {
  if (!at(kind, text)) return false;
  next();
  return true;
}

void ExpressionParser::unexpected(const std::string& wanted) const {
  refuse(current().at, "expected " + wanted + ", found " + shown(current()));
}

void ExpressionParser::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) unexpected("'" + std::string(sign) + "'");
}

std::string ExpressionParser::expect_name() {
  if (!at(Kind::name)) unexpected("a name");
  return next().text;
}

Branch ExpressionParser::tuple(bool conditional) {
  const Position at = current().at;
  const auto one = [&] { return conditional ? expression() : alternative(); };
  Branch first = one();
  if (!at_sign(",")) return first;
  int below = depth_of(first);
  ListDisplay display{{}, true};
  display.items.push_back(std::move(first));
  while (skip_sign(",")) {
    if (this->at(Kind::print_end) || this->at(Kind::block_end) || at_sign(")")) break;
    display.items.push_back(one());
    below = std::max(below, depth_of(display.items.back()));
  }
  return make(at, std::move(display), below);
}

Branch ExpressionParser::expression() {
  const Deeper deeper(*this);
  Branch value = alternative();
  while (at(Kind::name, "if")) {
    const Position at = next().at;
    Branch condition = alternative();
    Branch otherwise = skip(Kind::name, "else") ? expression() : nullptr;
    const int below = std::max({depth_of(condition), depth_of(value), depth_of(otherwise)});
    value = make(at, Conditional{std::move(condition), std::move(value), std::move(otherwise)}, below);
  }
  return value;
}

Branch ExpressionParser::alternative() {
  Branch left = conjunction();
  while (at(Kind::name, "or")) {
    const Position at = next().at;
    Branch right = conjunction();
    const int below = std::max(depth_of(left), depth_of(right));
    left = make(at, Logic{true, std::move(left), std::move(right)}, below);
  }
  return left;
}

Branch ExpressionParser::conjunction() {
  Branch left = negation();
  while (at(Kind::name, "and")) {
    const Position at = next().at;
    Branch right = negation();
    const int below = std::max(depth_of(left), depth_of(right));
    left = make(at, Logic{false, std::move(left), std::move(right)}, below);
  }
  return left;
}

Branch ExpressionParser::negation() {
  if (!at(Kind::name, "not")) return comparison();
  const Deeper deeper(*this);
  const Position at = next().at;
  Branch of = negation();
  const int below = depth_of(of);
  return make(at, Not{std::move(of)}, below);
}

Branch ExpressionParser::comparison() {
  static constexpr std::array<std::string_view, 6> signs = {"==", "!=", "<", "<=", ">", ">="};
  const Position at = current().at;
  Branch first = sum();
  Comparison comparison;
  int below = depth_of(first);
  while (true) {
    std::string sign;
    if (this->at(Kind::sign) && std::find(signs.begin(), signs.end(), current().text) != signs.end())
      sign = next().text;
    else if (skip(Kind::name, "in"))
      sign = "in";
    else if (this->at(Kind::name, "not") && tokens_[at_ + 1].kind == Kind::name &&
             tokens_[at_ + 1].text == "in")
      next(), next(), sign = "not in";
    else
      break;
    Branch right = sum();
    below = std::max(below, depth_of(right));
    comparison.rest.emplace_back(std::move(sign), std::move(right));
  }
  if (comparison.rest.empty()) return first;
  comparison.first = std::move(first);
  return make(at, std::move(comparison), below);
}

Branch ExpressionParser::sum() {
  Branch left = joined();
  while (at_sign("+") || at_sign("-")) {
    const Token sign = next();
    Branch right = joined();
    const int below = std::max(depth_of(left), depth_of(right));
    left = make(sign.at, Arithmetic{sign.text, std::move(left), std::move(right)}, below);
  }
  return left;
}

Branch ExpressionParser::joined() {
  const Position at = current().at;
  Branch first = product();
  if (!at_sign("~")) return first;
  int below = depth_of(first);
  Joined joined;
  joined.parts.push_back(std::move(first));
  while (skip_sign("~")) {
    joined.parts.push_back(product());
    below = std::max(below, depth_of(joined.parts.back()));
  }
  return make(at, std::move(joined), below);
}

Branch ExpressionParser::product() {
  Branch left = power();
  while (at_sign("*") || at_sign("/") || at_sign("//") || at_sign("%")) {
    const Token sign = next();
    Branch right = power();
    const int below = std::max(depth_of(left), depth_of(right));
    left = make(sign.at, Arithmetic{sign.text, std::move(left), std::move(right)}, below);
  }
  return left;
}

Branch ExpressionParser::power() {
  Branch left = unary(true);
  while (at_sign("**")) {
    const Position at = next().at;
    Branch right = unary(true);
    const int below = std::max(depth_of(left), depth_of(right));
    left = make(at, Arithmetic{"**", std::move(left), std::move(right)}, below);
  }
  return left;
}

Branch ExpressionParser::unary(bool with_filters) {
  const Deeper deeper(*this);
  Branch value;
  if (at_sign("-") || at_sign("+")) {
    const Token sign = next();
    Branch of = unary(false);
    const int below = depth_of(of);
    value = make(sign.at, Signed{std::move(of), sign.text == "-"}, below);
  } else {
    value = primary();
  }
  value = postfixes(std::move(value));
  while (with_filters) {
    if (at_sign("|"))
      value = filter(std::move(value));
    else if (at(Kind::name, "is"))
      value = test(std::move(value));
    else if (at_sign("("))
      value = call(std::move(value));
    else
      break;
  }
  return value;
}

}  // namespace holdfast::chat
