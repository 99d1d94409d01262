// A recursive descent over the expression: alternatives() reads branches, item() reads a group, a set in
// brackets, an escape or a character, and repetition() what is behind it. Groups are at most 32 deep. A set
// is complete when item() has called finish(); matching only reads it.
//
// A form that is not among those of pattern.hpp is refused with its place, and never read as something
// similar: words that are cut otherwise would give tokens that the model has not learned. Inside (?i:..)
// ignore_case_ is set, up to the end of that group; letters outside ASCII and properties are refused there.
//
// White space and the script Han are listed here; general categories come from unicode.hpp.
#include <optional>

#include "src/base/error.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/text/pattern.hpp"

namespace holdfast::text {
namespace {

constexpr int deepest_group = 32;          // groups in groups
constexpr std::uint32_t no_limit = ~0u;    // of a repetition
constexpr std::uint32_t max_times = 1000;  // a number in braces
constexpr std::uint32_t decimal = bit(Category::Nd);

/// White_Space of PropList.txt; it has not changed since Unicode 6.3.
constexpr std::pair<std::uint32_t, std::uint32_t> spaces[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
/// Script=Han of Unicode 16.
constexpr std::pair<std::uint32_t, std::uint32_t> han[] = {
    {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},   {0x3007, 0x3007},
    {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},
    {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
    {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
    {0x30000, 0x3134A}, {0x31350, 0x323AF}};

class Parser {
 public:
  explicit Parser(std::string_view expression) : expression_(expression) {}

  std::vector<PatternBranch> whole() {
    if (expression_.size() > longest_pattern)
      refuse("it is longer than " + std::to_string(longest_pattern) + " bytes");
    if (!utf8::valid(expression_)) refuse("it is not UTF-8");
    std::vector<PatternBranch> branches = alternatives(0);
    if (at_ < expression_.size()) refuse("a ')' too many");
    return branches;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Exit::usage, "cannot use the tokenizer's pattern " + std::string(expression_),
                why + ", before byte " + std::to_string(at_));
  }
  bool take(std::string_view wanted) {
    if (!expression_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }
  bool more() const { return at_ < expression_.size(); }
  std::uint32_t next_character() {
    if (!more()) refuse("it ends too early");
    const std::uint32_t c = utf8::code_point(expression_.data() + at_);
    at_ += utf8::character_bytes(expression_[at_]);
    return c;
  }

  std::vector<PatternBranch> alternatives(int depth) {
    if (depth > deepest_group) refuse("groups are nested too deeply");
    std::vector<PatternBranch> branches(1);
    while (more() && expression_[at_] != ')') {
      if (take("|"))
        branches.emplace_back();
      else
        branches.back().push_back(item(depth));
    }
    return branches;
  }

  PatternItem item(int depth) {
    PatternItem item;
    if (take("(")) {
      group(item, depth);
    } else if (take("[")) {
      item.set = bracket();
    } else if (take("\\")) {
      escape(item.set);
    } else if (take(".")) {
      item.set.add('\n', '\n');
      item.set.negate();
    } else {
      const std::uint32_t c = next_character();
      if (c < 0x80 && std::string_view("^$*+?{}]").find(static_cast<char>(c)) != std::string_view::npos)
        refuse(std::string("'") + static_cast<char>(c) + "' in this place");
      if (ignore_case_ && c >= 0x80) refuse("a letter outside ASCII in (?i:..)");
      item.set.add(c, c);
    }
    if (item.kind == PatternItem::Kind::set) {
      if (ignore_case_) item.set.ignore_case();
      item.set.finish();
    }
    repetition(item);
    return item;
  }

  void group(PatternItem& item, int depth) {
    const bool outer_case = ignore_case_;
    item.kind = PatternItem::Kind::group;
    if (take("?="))
      item.kind = PatternItem::Kind::ahead;
    else if (take("?!"))
      item.kind = PatternItem::Kind::not_ahead;
    else if (take("?i:"))
      ignore_case_ = true;
    else if (!take("?:") && take("?"))
      refuse("a group of this kind");
    item.branches = alternatives(depth + 1);
    if (!take(")")) refuse("a ')' is missing");
    ignore_case_ = outer_case;
  }

  void repetition(PatternItem& item) {
    bool braces = false;
    if (take("?"))
      item.least = 0;
    else if (take("*")) {
      item.least = 0;
      item.most = no_limit;
    } else if (take("+"))
      item.most = no_limit;
    else if (take("{")) {
      braces = true;
      times(item);
    } else
      return;
    const bool group = item.kind != PatternItem::Kind::set;
    if (item.kind == PatternItem::Kind::ahead || item.kind == PatternItem::Kind::not_ahead ||
        (group && item.most > 1))
      refuse("a repeated group");
    // x{1,3}+ is (?:x{1,3})+ here, and other signs one behind another mean as little.
    if (!braces && !group && take("+")) item.possessive = true;
    if (more() && std::string_view("?*+{").find(expression_[at_]) != std::string_view::npos)
      refuse("a repetition of a repetition, or a lazy one");
  }

  void times(PatternItem& item) {
    item.least = item.most = number();
    if (take(",")) {
      item.most = no_limit;
      if (more() && expression_[at_] != '}') item.most = number();
    }
    if (!take("}") || item.most < item.least || item.most == 0) refuse("a wrong number of times");
  }
  std::uint32_t number() {
    std::uint32_t value = 0;
    const std::size_t first = at_;
    while (more() && expression_[at_] >= '0' && expression_[at_] <= '9' && value <= max_times)
      value = value * 10 + static_cast<std::uint32_t>(expression_[at_++] - '0');
    if (at_ == first || value > max_times) refuse("a wrong number of times");
    return value;
  }

  /// What is behind a backslash, added to `set`; the character when it is one.
  std::optional<std::uint32_t> escape(CharacterSet& set) {
    const auto single = [&](std::uint32_t c) {
      set.add(c, c);
      return std::optional(c);
    };
    if (take("r")) return single('\r');
    if (take("n")) return single('\n');
    if (take("t")) return single('\t');
    if (take("v")) return single('\v');
    if (take("f")) return single('\f');
    if (take("x{")) return single(hexadecimal());
    if (take("s") || take("S")) {
      add_spaces(set, expression_[at_ - 1] == 'S');
      return std::nullopt;
    }
    if (take("d")) {
      set.add_categories(decimal);
      return std::nullopt;
    }
    if (take("p{") || take("P{")) {
      property(set, expression_[at_ - 2] == 'P');
      return std::nullopt;
    }
    const std::uint32_t c = next_character();
    const bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter || c >= 0x80 || c < 0x20) refuse("this character behind a backslash");
    return single(c);
  }
  std::uint32_t hexadecimal() {
    std::uint32_t value = 0;
    const std::size_t first = at_;
    for (; more() && value < end_of_unicode; ++at_) {
      const char c = expression_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    if (at_ == first || value >= end_of_unicode || !take("}")) refuse("a wrong \\x{..}");
    return value;
  }
  static void add_spaces(CharacterSet& set, bool others) {
    std::uint32_t next = 0;
    for (const auto& [first, last] : spaces) {
      if (!others) set.add(first, last);
      if (others && next < first) set.add(next, first - 1);
      next = last + 1;
    }
    if (others) set.add(next, end_of_unicode - 1);
  }
  void property(CharacterSet& set, bool others) {
    if (ignore_case_) refuse("a property in (?i:..)");
    const std::size_t end = expression_.find('}', at_);
    if (end == std::string_view::npos) refuse("a property without end");
    const std::string_view name = expression_.substr(at_, end - at_);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < category_names.size() && (name.size() == 1 || name.size() == 2); ++i) {
      if (category_names[i].starts_with(name)) bits |= 1u << i;
    }
    if (name == "Han" && !others) {
      for (const auto& [first, last] : han) set.add(first, last);
    } else if (bits == 0) {
      refuse("the property '" + std::string(name.substr(0, 40)) + "'");
    }
    set.add_categories(others ? ~bits : bits);
    at_ = end + 1;
  }

  CharacterSet bracket() {
    CharacterSet set;
    const bool negated = take("^");
    bool first = true;
    for (; !take("]"); first = false) {
      if (first && more() && expression_[at_] == ']') refuse("an empty set");
      if (expression_.substr(at_).starts_with("&&") || expression_.substr(at_).starts_with("["))
        refuse("a set in a set");
      const std::optional<std::uint32_t> low = member(set);
      const bool to = expression_.substr(at_).starts_with("-") && !expression_.substr(at_).starts_with("-]");
      if (!to) continue;
      if (!low) refuse("a range that does not begin with a character");
      take("-");
      const std::optional<std::uint32_t> high = member(set);
      if (!high || *high < *low) refuse("a wrong range");
      if (ignore_case_ && *high >= 0x80) refuse("a letter outside ASCII in (?i:..)");
      set.add(*low, *high);
    }
    if (first) refuse("an empty set");
    if (ignore_case_) set.ignore_case();
    if (negated) set.negate();
    return set;
  }
  std::optional<std::uint32_t> member(CharacterSet& set) {
    if (take("\\")) return escape(set);
    const std::uint32_t c = next_character();
    if (ignore_case_ && c >= 0x80) refuse("a letter outside ASCII in (?i:..)");
    set.add(c, c);
    return c;
  }

  std::string_view expression_;
  std::size_t at_ = 0;
  bool ignore_case_ = false;
};

}  // namespace

std::vector<PatternBranch> parse_pattern(std::string_view expression) { return Parser(expression).whole(); }

}  // namespace holdfast::text
