#pragma once
// A template as a tree.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/tools/chat/builtins.hpp"
#include "src/tools/chat/lexer.hpp"
#include "src/tools/chat/value.hpp"

namespace holdfast::chat {

struct Expression;
using Branch = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<Branch> plain;
  std::vector<std::pair<std::string, Branch>> named;
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListDisplay {
  std::vector<Branch> items;
  bool tuple = false;
};
struct DictDisplay {
  std::vector<std::pair<Branch, Branch>> entries;
};
struct Attribute {  // of.name
  Branch of;
  std::string name;
};
struct Item {  // of[key]
  Branch of, key;
};
struct Slice {  // of[first:end:step]; each may be missing
  Branch of, first, end, step;
};
struct Call {
  Branch callee;
  CallArguments arguments;
};
struct Filtered {  // of | filter(...)
  Branch of;
  const NamedFilter* filter;
  CallArguments arguments;
};
struct Tested {  // of is test(...)
  Branch of;
  const NamedTest* test;
  CallArguments arguments;
};
struct Not {
  Branch of;
};
struct Signed {  // -of, +of
  Branch of;
  bool minus;
};
struct Arithmetic {
  std::string sign;  ///< + - * / // % **
  Branch left, right;
};
struct Joined {  // a ~ b ~ c
  std::vector<Branch> parts;
};
struct Logic {
  bool either;  ///< or; else and
  Branch left, right;
};
struct Comparison {  // a < b < c
  Branch first;
  std::vector<std::pair<std::string, Branch>> rest;  ///< == != < <= > >= in, not in
};
struct Conditional {     // yes if test else no
  Branch test, yes, no;  ///< `no` may be missing
};

struct Expression {
  Position at;
  int depth = 1;  ///< of the tree below, this included
  std::variant<Literal, Name, ListDisplay, DictDisplay, Attribute, Item, Slice, Call, Filtered, Tested, Not,
               Signed, Arithmetic, Joined, Logic, Comparison, Conditional>
      is;
};

struct Statement;
using Body = std::vector<Statement>;

/// What a value is given to: a name, several names (it is unpacked), or a place in a namespace.
struct Target {
  std::vector<std::string> names;
  std::string attribute;  ///< of the namespace `names[0]`, or empty
  bool unpacked = false;
};

struct DataStatement {
  Text text;
};
struct PrintStatement {
  Branch value;
};
struct IfStatement {
  std::vector<std::pair<Branch, Body>> branches;
  Body otherwise;
};
struct ForStatement {
  Target target;
  Branch over, only_if;  ///< `only_if` may be missing
  Body body, otherwise;
};
struct SetStatement {
  Target target;
  Branch value;
};
struct SetBlockStatement {
  Target target;
  Branch filtered;  ///< filters over the name "", which is the block's text; or missing
  Body body;
};
struct MacroStatement {
  std::string name;
  std::vector<std::pair<std::string, Branch>> parameters;  ///< with what they are when not given, or none
  Body body;
};
struct GenerationStatement {
  Body body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  Position at;
  std::variant<DataStatement, PrintStatement, IfStatement, ForStatement, SetStatement, SetBlockStatement,
               std::unique_ptr<MacroStatement>, GenerationStatement, BreakStatement, ContinueStatement>
      is;
};

}  // namespace holdfast::chat
