#include "src/tools/chat/parser.hpp"

#include <algorithm>
#include <initializer_list>

#include "src/tools/chat/expression_parser.hpp"

namespace holdfast::chat {
namespace {

using Kind = Token::Kind;
using Ends = std::initializer_list<std::string_view>;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(tokens_of(source)) {}

  Body run() {
    Body all = body({}, {});
    if (!at(Kind::end)) unexpected("the end of the template");
    return all;
  }

 private:
  /// Statements up to a block that begins with one of `ends`, whose name is then the current token; the name
  /// of what `begun` there is for the message when it does not come.
  Body body(Ends ends, Position begun) {
    const Deeper deeper(*this);
    Body statements;
    while (!at(Kind::end)) {
      const Position at = current().at;
      if (this->at(Kind::data)) {
        statements.push_back({at, DataStatement{own_text(next().text)}});
      } else if (this->at(Kind::print_begin)) {
        next();
        statements.push_back({at, PrintStatement{tuple()}});
        if (!this->at(Kind::print_end)) unexpected("'}}'");
        next();
      } else {
        next();  // block_begin
        if (this->at(Kind::name) && std::find(ends.begin(), ends.end(), current().text) != ends.end())
          return statements;
        statements.push_back(statement());
        end_block();
      }
    }
    if (ends.size() > 0)
      refuse(begun, "'" + std::string(*(ends.end() - 1)) + "' is missing for what begins here");
    return statements;
  }

  void end_block() {
    if (!at(Kind::block_end)) unexpected("'%}'");
    next();
  }

  Statement statement() {
    const Position at = current().at;
    const std::string word = expect_name();
    if (word == "if") return {at, if_statement(at)};
    if (word == "for") return {at, for_statement(at)};
    if (word == "set") return set_statement(at);
    if (word == "macro") return {at, macro(at)};
    if (word == "generation") return {at, generation(at)};
    if (word == "break" || word == "continue") {
      if (loops_ == 0) refuse(at, "'" + word + "' outside a loop");
      if (word == "break") return {at, BreakStatement{}};
      return {at, ContinueStatement{}};
    }
    refuse(at, "the statement '" + word + "' is not understood here");
  }

  IfStatement if_statement(Position begun) {
    IfStatement made;
    while (true) {
      Branch test = tuple(false);
      end_block();
      Body yes = body({"elif", "else", "endif"}, begun);
      made.branches.emplace_back(std::move(test), std::move(yes));
      if (!skip(Kind::name, "elif")) break;
    }
    if (skip(Kind::name, "else")) {
      end_block();
      made.otherwise = body({"endif"}, begun);
    }
    next();
    return made;
  }

  ForStatement for_statement(Position begun) {
    ForStatement made;
    made.target = target(false);
    if (!skip(Kind::name, "in")) unexpected("'in'");
    made.over = tuple(false);
    if (skip(Kind::name, "if")) made.only_if = expression();
    if (at(Kind::name, "recursive")) refuse(current().at, "recursive loops are not understood");
    end_block();
    ++loops_;
    ++scopes_;
    made.body = body({"else", "endfor"}, begun);
    --loops_;
    --scopes_;
    if (skip(Kind::name, "else")) {
      end_block();
      made.otherwise = body({"endfor"}, begun);
    }
    next();
    return made;
  }

  Target target(bool may_be_attribute) {
    Target made;
    const bool parenthesis = skip_sign("(");
    made.names.push_back(expect_name());
    if (may_be_attribute && !parenthesis && skip_sign(".")) {
      made.attribute = expect_name();
      return made;
    }
    while (skip_sign(",")) {
      made.unpacked = true;
      if (!at(Kind::name) || at(Kind::name, "in")) break;
      made.names.push_back(expect_name());
    }
    if (parenthesis) expect_sign(")");
    return made;
  }

  Statement set_statement(Position at) {
    Target to = target(true);
    if (skip_sign("=")) return {at, SetStatement{std::move(to), tuple()}};
    Branch filtered;
    if (at_sign("|")) filtered = filters(std::make_unique<Expression>(Expression{at, 1, Name{""}}));
    if (to.unpacked) unexpected("'='");
    end_block();
    ++scopes_;
    ++captures_;
    Body inside = body({"endset"}, at);
    --scopes_;
    --captures_;
    next();
    return {at, SetBlockStatement{std::move(to), std::move(filtered), std::move(inside)}};
  }

  /// A macro sees the variables of the template. One inside a loop would have to keep those of its round.
  std::unique_ptr<MacroStatement> macro(Position begun) {
    if (scopes_ > 0) refuse(begun, "a macro inside a loop, a block or a macro is not understood");
    auto made = std::make_unique<MacroStatement>();
    made->name = expect_name();
    expect_sign("(");
    while (!at_sign(")")) {
      if (!made->parameters.empty()) expect_sign(",");
      std::string name = expect_name();
      Branch otherwise = skip_sign("=") ? expression() : nullptr;
      made->parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    next();
    end_block();
    const int loops = std::exchange(loops_, 0);
    ++scopes_;
    ++captures_;
    made->body = body({"endmacro"}, begun);
    --scopes_;
    --captures_;
    loops_ = loops;
    next();
    return made;
  }

  GenerationStatement generation(Position begun) {
    if (captures_ > 0) refuse(begun, "a generation block inside a macro or a set block is not understood");
    end_block();
    const int loops = std::exchange(loops_, 0);
    ++scopes_;
    Body inside = body({"endgeneration"}, begun);
    --scopes_;
    loops_ = loops;
    next();
    return {std::move(inside)};
  }

  int loops_ = 0, scopes_ = 0, captures_ = 0;
};

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace holdfast::chat
