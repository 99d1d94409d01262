#pragma once
// Regular expressions of pre-tokenizers. Published tokenizers use a small part of what such expressions can
// say: this is that part, with the meaning that Oniguruma gives it (Ruby syntax, UTF-8), which is what
// Hugging Face `tokenizers` runs.
//
//     abc  .  \r \n \t \v \f  \x{41}  escaped punctuation
//     \s \S \d \p{L} \P{Lu} \p{Han}   (general categories)   [a-z\p{L}]  [^\s\p{N}]
//     x? x* x+ x{2} x{1,} x{1,3}   and of these with + behind ? * + the possessive forms
//     (..) (?:..) (?i:..) (?=..) (?!..)   (..)?   a|b
//
// Groups are not numbered, repeated groups, lazy forms, anchors and backward references are refused.
#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tools/text/unicode.hpp"

namespace holdfast::text {

/// A set of characters.
class CharacterSet {
 public:
  void add(std::uint32_t first, std::uint32_t last) { ranges_.emplace_back(first, last); }
  void add_categories(std::uint32_t bits) { categories_ |= bits; }
  /// Adds the other case of every ASCII letter in it, and what else folds to one (U+017F, U+212A).
  void ignore_case();
  void negate() { negated_ = !negated_; }
  /// To be called once, after the last change.
  void finish();

  bool has(std::uint32_t c) const { return c < ascii_.size() ? ascii_[c] : computed(c); }
  bool has_ascii(unsigned char c) const { return ascii_[c]; }

 private:
  bool computed(std::uint32_t c) const;

  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges_;
  std::uint32_t categories_ = 0;
  bool negated_ = false;
  std::bitset<128> ascii_;
};

/// Bytes of an expression: matching goes as deep as a branch is long.
inline constexpr std::size_t longest_pattern = 4096;

struct PatternItem;
using PatternBranch = std::vector<PatternItem>;

struct PatternItem {
  enum class Kind { set, group, ahead, not_ahead };
  Kind kind = Kind::set;
  CharacterSet set;
  std::vector<PatternBranch> branches;  ///< of a group or what is looked for ahead: the first that fits
  std::uint32_t least = 1, most = 1;    ///< of a group: 0 or 1, and 1
  bool possessive = false;              ///< gives nothing back
};

class Pattern {
 public:
  static constexpr std::size_t none = -1;

  /// Error (usage) that names what it does not understand; also when the pattern can match the empty text,
  /// with which nothing can be cut.
  explicit Pattern(std::string_view expression);
  /// One that matches `text` and nothing else.
  static Pattern literal(std::string_view text);

  /// The end of the match that begins at byte `at` of `text` (valid UTF-8), or none. `steps` is what may
  /// still be tried; Error (usage) when it is spent: a pattern may need a time that grows with a power of the
  /// text's length.
  std::size_t match(std::string_view text, std::size_t at, std::uint64_t& steps) const;

 private:
  Pattern() = default;
  void find_first_bytes();

  std::string expression_;
  std::vector<PatternBranch> branches_;
  std::array<std::uint64_t, 256> first_ = {};  ///< bit i: a match of branch i can begin with this byte
};

/// Reads an expression; what Pattern is made of.
std::vector<PatternBranch> parse_pattern(std::string_view expression);

}  // namespace holdfast::text
