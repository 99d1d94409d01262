// run() goes through the tree that the parser has made and appends text to out_. A statement returns a Flow,
// by which break and continue leave the bodies up to their loop. evaluate() computes an expression, with one
// of() for each kind. A name is looked up from the innermost scope outwards, and then among the functions
// that all templates have; one that is found nowhere is Undefined. A round of a loop, a macro, a generation
// block and a block whose text is captured have a scope of their own (Inner); `if` has none, and a macro sees
// only the root besides its own.
//
// Templates come from anywhere. Statements, expressions and text are paid for from the Budget, and Deeper
// bounds how deep the stack gets. Everything that a template does wrong is a Refusal. where_ then still says
// where it happened, since only an expression that has a value sets it back. After a Refusal the Evaluator is
// not used again.
#include "src/tools/chat/evaluator.hpp"

#include <algorithm>

#include "src/tools/chat/value_text.hpp"

namespace holdfast::chat {
namespace {

/// Macros may call themselves. With what the parser allows one tree this bounds the stack.
constexpr int deepest_evaluation = 600;

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

/// Counts what the stack holds.
class Evaluator::Deeper {
 public:
  explicit Deeper(Evaluator& evaluator) : evaluator_(evaluator) {
    if (evaluator_.depth_ >= deepest_evaluation) throw Refusal("it calls itself too deep");
    ++evaluator_.depth_;
  }
  ~Deeper() { --evaluator_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Evaluator& evaluator_;
};

/// Variables that are set while it lives are gone with it.
class Evaluator::Inner {
 public:
  Inner(Evaluator& evaluator, const Scope& outer) : evaluator_(evaluator), before_(evaluator.scope_) {
    scope_.outer = &outer;
    evaluator_.scope_ = &scope_;
  }
  ~Inner() { evaluator_.scope_ = before_; }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;

 private:
  Evaluator& evaluator_;
  Scope* before_;
  Scope scope_;
};

void Evaluator::set(std::string_view name, Value value) { assign(name, std::move(value)); }

Text Evaluator::run(const Body& body) {
  Text out;
  out_ = &out;
  run_body(body);
  return out;
}

Evaluator::Flow Evaluator::run_body(const Body& body) {
  const Deeper deeper(*this);
  for (const Statement& statement : body) {
    const Flow flow = run_statement(statement);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::run_statement(const Statement& statement) {
  where_ = statement.at;
  rendering_.budget.steps(1);
  return std::visit(
      Overloaded{
          [&](const DataStatement& data) { return put(data.text), Flow::on; },
          [&](const PrintStatement& print) {
            return put(to_text(evaluate(*print.value), rendering_.budget)), Flow::on;
          },
          [&](const IfStatement& choice) { return run(choice); },
          [&](const ForStatement& loop) { return run(loop), Flow::on; },
          [&](const SetStatement& set) { return assign(set.target, evaluate(*set.value)), Flow::on; },
          [&](const SetBlockStatement& set) { return run(set), Flow::on; },
          [&](const std::unique_ptr<MacroStatement>& macro) {
            return assign(macro->name, static_cast<const MacroStatement*>(macro.get())), Flow::on;
          },
          [&](const GenerationStatement& generation) { return run(generation), Flow::on; },
          [&](const BreakStatement&) { return Flow::leave_loop; },
          [&](const ContinueStatement&) { return Flow::next_round; },
      },
      statement.is);
}

Evaluator::Flow Evaluator::run(const IfStatement& statement) {
  for (const auto& [test, body] : statement.branches)
    if (is_true(*test)) return run_body(body);
  return run_body(statement.otherwise);
}

void Evaluator::run(const ForStatement& statement) {
  auto items = items_of(evaluate(*statement.over), rendering_.budget);
  if (statement.only_if) {
    std::vector<Value> kept;
    for (const Value& item : items->items) {
      const Inner scope(*this, *scope_);
      assign(statement.target, item);
      if (is_true(*statement.only_if)) kept.push_back(item);
    }
    items = std::get<std::shared_ptr<const List>>(list_value(std::move(kept)));
  }
  bool came_to_end = false;  // of the body, in one round: Jinja asks for that, not whether there were rounds
  for (std::size_t i = 0; i < items->items.size(); ++i) {
    rendering_.budget.steps(1);
    const Inner scope(*this, *scope_);
    assign("loop", loop_value(items, i));
    assign(statement.target, items->items[i]);
    const Flow flow = run_body(statement.body);
    if (flow == Flow::leave_loop) break;
    came_to_end |= flow == Flow::on;
  }
  if (!came_to_end) {
    const Inner scope(*this, *scope_);
    run_body(statement.otherwise);
  }
}

void Evaluator::run(const SetBlockStatement& statement) {
  Value value = text_value(captured(statement.body));
  if (statement.filtered) {
    const Inner scope(*this, *scope_);
    assign("", std::move(value));
    value = evaluate(*statement.filtered);
  }
  assign(statement.target, std::move(value));
}

void Evaluator::run(const GenerationStatement& statement) {
  const Inner scope(*this, *scope_);
  const std::size_t first = out_->bytes.size();
  run_body(statement.body);
  if (out_->bytes.size() > first) generated_.emplace_back(first, out_->bytes.size());
}

Text Evaluator::captured(const Body& body) {
  const Inner scope(*this, *scope_);
  Text text;
  Text* const before = std::exchange(out_, &text);
  run_body(body);
  out_ = before;
  return text;
}

void Evaluator::put(const Text& text) {
  rendering_.budget.bytes(text.bytes.size());
  if (text.bytes.size() > longest_output - out_->bytes.size()) throw Refusal("it makes too much text");
  append(*out_, text);
}

void Evaluator::assign(const Target& target, Value value) {
  if (!target.attribute.empty()) {
    const Value holder = lookup(target.names.front());
    const auto* space = std::get_if<Namespace*>(&holder);
    if (!space) throw Refusal("'" + target.names.front() + "' is no namespace, and its parts cannot be set");
    if (target.attribute.starts_with('_')) throw Refusal("a name in a namespace begins with '_'");
    rendering_.budget.steps((*space)->entries.size());
    return (*space)->set(target.attribute, std::move(value));
  }
  if (!target.unpacked) return assign(target.names.front(), std::move(value));
  const auto items = items_of(value, rendering_.budget);
  if (items->items.size() != target.names.size())
    throw Refusal(std::to_string(items->items.size()) + " values for " + std::to_string(target.names.size()) +
                  " names");
  for (std::size_t i = 0; i < target.names.size(); ++i) assign(target.names[i], items->items[i]);
}

void Evaluator::assign(std::string_view name, Value value) {
  rendering_.budget.steps(1 + scope_->variables.size() / 8);
  for (auto& [known, held] : scope_->variables)
    if (known == name) return void(held = std::move(value));
  scope_->variables.emplace_back(name, std::move(value));
}

Value Evaluator::lookup(std::string_view name) const {
  for (const Scope* scope = scope_; scope; scope = scope->outer) {
    rendering_.budget.steps(scope->variables.size() / 8);
    for (const auto& [known, value] : scope->variables)
      if (known == name) return value;
  }
  if (const GlobalFunction* function = find_function(name)) return function;
  return Undefined{std::string(name)};
}

Value Evaluator::evaluate(const Expression& expression) {
  const Deeper deeper(*this);
  rendering_.budget.steps(1);
  const Position before = std::exchange(where_, expression.at);
  Value value = std::visit([&](const auto& is) { return of(is); }, expression.is);
  where_ = before;
  return value;
}

Value Evaluator::of(const ListDisplay& display) {
  std::vector<Value> items;
  for (const Branch& item : display.items) items.push_back(evaluate(*item));
  return list_value(std::move(items), display.tuple ? List::Kind::tuple : List::Kind::list);
}

Value Evaluator::of(const DictDisplay& display) {
  std::vector<Dict::Entry> entries;
  for (const auto& [key, value] : display.entries) {
    const Value name = evaluate(*key);
    const auto* text = std::get_if<std::shared_ptr<const Text>>(&name);
    if (!text) throw Refusal("the keys of a mapping are strings, not " + kind_of(name));
    entries.emplace_back(*text, evaluate(*value));
  }
  return dict_value(std::move(entries));
}

Value Evaluator::of(const Item& item) {
  const Value whole = evaluate(*item.of), key = evaluate(*item.key);
  if (const auto* text = as<Text>(whole)) rendering_.budget.steps(text->bytes.size() / 16);
  return item_of(whole, key);
}

Value Evaluator::of(const Slice& slice) {
  const Value whole = evaluate(*slice.of);
  const Value first = optional(slice.first), end = optional(slice.end), step = optional(slice.step);
  return slice_of(whole, first, end, step, rendering_.budget);
}

Arguments Evaluator::arguments_of(const CallArguments& given) {
  std::vector<Value> plain;
  std::vector<std::pair<std::string, Value>> named;
  for (const Branch& each : given.plain) plain.push_back(evaluate(*each));
  for (const auto& [name, each] : given.named) named.emplace_back(name, evaluate(*each));
  return {std::move(plain), std::move(named)};
}

Value Evaluator::of(const Call& call) {
  const Value callee = evaluate(*call.callee);
  Arguments arguments = arguments_of(call.arguments);
  if (const auto* method = as<Method>(callee)) return call_method(*method, arguments, rendering_);
  if (const auto* macro = std::get_if<const MacroStatement*>(&callee)) return call_macro(**macro, arguments);
  if (const auto* function = std::get_if<const GlobalFunction*>(&callee))
    return (*function)->run(arguments, rendering_);
  throw Refusal("cannot call " + kind_of(callee));
}

Value Evaluator::call_macro(const MacroStatement& macro, Arguments& arguments) {
  const Inner scope(*this, root_);
  for (const auto& [name, otherwise] : macro.parameters) {
    auto given = arguments.take(name);
    assign(name, given ? *std::move(given) : otherwise ? evaluate(*otherwise) : Value(Undefined{name}));
  }
  arguments.finish();
  return text_value(captured(macro.body));
}

Value Evaluator::of(const Filtered& filtered) {
  const Value value = evaluate(*filtered.of);
  Arguments arguments = arguments_of(filtered.arguments);
  return filtered.filter->run(value, arguments, rendering_);
}

Value Evaluator::of(const Tested& tested) {
  const Value value = evaluate(*tested.of);
  Arguments arguments = arguments_of(tested.arguments);
  return tested.test->run(value, arguments, rendering_);
}

Value Evaluator::of(const Signed& with_sign) {
  const Value value = evaluate(*with_sign.of);
  return arithmetic(with_sign.minus ? "-" : "+", std::int64_t{0}, value, rendering_.budget);
}

Value Evaluator::of(const Arithmetic& a) {
  const Value left = evaluate(*a.left), right = evaluate(*a.right);
  return arithmetic(a.sign, left, right, rendering_.budget);
}

Value Evaluator::of(const Joined& joined) {
  Text text;
  for (const Branch& each : joined.parts) append(text, to_text(evaluate(*each), rendering_.budget));
  return text_value(std::move(text));
}

Value Evaluator::of(const Logic& logic) {
  Value left = evaluate(*logic.left);
  return truth(left) == logic.either ? std::move(left) : evaluate(*logic.right);
}

Value Evaluator::of(const Comparison& comparison) {
  Budget& budget = rendering_.budget;
  Value left = evaluate(*comparison.first);
  for (const auto& [sign, branch] : comparison.rest) {
    Value right = evaluate(*branch);
    const bool holds = sign == "=="   ? equal(left, right, budget)
                       : sign == "!=" ? !equal(left, right, budget)
                       : sign == "<"  ? less(left, right)
                       : sign == ">"  ? less(right, left)
                       : sign == "<=" ? less(left, right) || equal(left, right, budget)
                       : sign == ">=" ? less(right, left) || equal(left, right, budget)
                       : sign == "in" ? contains(right, left, budget)
                                      : !contains(right, left, budget);
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::of(const Conditional& conditional) {
  if (is_true(*conditional.test)) return evaluate(*conditional.yes);
  return optional(conditional.no);
}

}  // namespace holdfast::chat
