#pragma once
// Expressions, by the precedence of Jinja: if-else, or, and, not, comparisons, + -, ~, * / // %, **, signs;
// then operands (operand_parser.cpp): literals, postfixes, filters and tests.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "src/tools/chat/syntax.hpp"

namespace holdfast::chat {

inline int depth_of(const Branch& branch) { return branch ? branch->depth : 0; }

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool at(Token::Kind kind) const { return current().kind == kind; }
  bool at(Token::Kind kind, std::string_view text) const { return at(kind) && current().text == text; }
  bool at_sign(std::string_view sign) const { return at(Token::Kind::sign, sign); }
  bool skip(Token::Kind kind, std::string_view text);
  bool skip_sign(std::string_view sign) { return skip(Token::Kind::sign, sign); }
  void expect_sign(std::string_view sign);
  std::string expect_name();
  [[noreturn]] void unexpected(const std::string& wanted) const;

  /// One expression, or several with commas between them, which make a tuple. `conditional`: `a if b` may
  /// come; else its `if` belongs to somebody else.
  Branch tuple(bool conditional = true);
  Branch expression();
  /// Filters behind `of`, as in {% set x | trim %}; `of` itself when there are none.
  Branch filters(Branch of);

 protected:
  /// Nobody nests this deep by hand. It bounds the stack that reading, computing and destroying take.
  static constexpr int deepest = 100, deepest_tree = 200;
  class Deeper {
   public:
    explicit Deeper(ExpressionParser& parser);
    ~Deeper() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };

 private:
  /// A node over trees that are `below` deep.
  template <class Is>
  Branch make(Position at, Is is, int below) {
    if (below >= deepest_tree) refuse(at, "it is nested too deep");
    return std::make_unique<Expression>(Expression{at, below + 1, std::move(is)});
  }
  Branch alternative();
  Branch conjunction();
  Branch negation();
  Branch comparison();
  Branch sum();
  Branch joined();
  Branch product();
  Branch power();
  Branch unary(bool with_filters);
  Branch primary();
  Branch parenthesis();
  Branch list();
  Branch dict();
  Branch postfixes(Branch of);
  Branch subscript(Branch of);
  Branch filter(Branch of);
  Branch test(Branch of);
  Branch call(Branch callee);
  CallArguments arguments();
  Branch literal(Position at, Value value);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace holdfast::chat
