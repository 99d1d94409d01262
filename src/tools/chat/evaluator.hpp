#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/tools/chat/builtins.hpp"
#include "src/tools/chat/syntax.hpp"

namespace holdfast::chat {

/// Runs a template once. Throws Refusal; where() then says at which place.
class Evaluator {
 public:
  /// At most as much text comes out.
  static constexpr std::size_t longest_output = std::size_t{64} << 20;

  explicit Evaluator(Rendering& rendering) : rendering_(rendering) {}
  void set(std::string_view name, Value value);
  Text run(const Body& body);
  /// The bytes of generation blocks in what run() returned.
  const std::vector<Range>& generated() const { return generated_; }
  Position where() const { return where_; }

 private:
  enum class Flow { on, next_round, leave_loop };
  struct Scope {
    const Scope* outer = nullptr;
    std::vector<std::pair<std::string, Value>> variables = {};
  };
  class Deeper;
  class Inner;

  Flow run_body(const Body& body);
  Flow run_statement(const Statement& statement);
  Flow run(const IfStatement& statement);
  void run(const ForStatement& statement);
  void run(const SetBlockStatement& statement);
  void run(const GenerationStatement& statement);
  void assign(const Target& target, Value value);
  void assign(std::string_view name, Value value);
  Text captured(const Body& body);
  void put(const Text& text);

  Value lookup(std::string_view name) const;
  Value evaluate(const Expression& expression);
  bool is_true(const Expression& expression) { return truth(evaluate(expression)); }
  Value optional(const Branch& branch) { return branch ? evaluate(*branch) : Value(Undefined{}); }
  Value of(const Literal& literal) { return literal.value; }
  Value of(const Name& name) { return lookup(name.name); }
  Value of(const ListDisplay& display);
  Value of(const DictDisplay& display);
  Value of(const Attribute& attribute) { return attribute_of(evaluate(*attribute.of), attribute.name); }
  Value of(const Item& item);
  Value of(const Slice& slice);
  Value of(const Call& call);
  Value of(const Filtered& filtered);
  Value of(const Tested& tested);
  Value of(const Not& negation) { return !is_true(*negation.of); }
  Value of(const Signed& with_sign);
  Value of(const Arithmetic& arithmetic);
  Value of(const Joined& joined);
  Value of(const Logic& logic);
  Value of(const Comparison& comparison);
  Value of(const Conditional& conditional);
  Arguments arguments_of(const CallArguments& given);
  Value call_macro(const MacroStatement& macro, Arguments& arguments);

  Rendering& rendering_;
  Scope root_;
  Scope* scope_ = &root_;
  Text* out_ = nullptr;
  std::vector<Range> generated_;
  Position where_;
  int depth_ = 0;
};

/// Python's `left sign right` for + - * / // % **. Refusal where it has no answer, or one above 63 bits.
Value arithmetic(std::string_view sign, const Value& left, const Value& right, Budget& budget);

}  // namespace holdfast::chat
