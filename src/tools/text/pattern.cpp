// A Pattern is prepared once: parse_pattern() reads it, one that can match the empty text is refused, and
// find_first_bytes() marks with which bytes a match of each branch can begin. match() then tries only the
// branches that fit the next byte, in their order, and the first that matches counts.
//
// A Matcher goes through a branch item by item. A set takes as many characters as it can and gives them back
// one by one while the rest does not match, unless it is possessive or nothing follows. A group tries its
// branches, with the rest of the outer branch chained behind (Rest). A look-ahead matches without moving.
//
// Each call goes further in the pattern, whose groups do not repeat, so the stack is bounded by the pattern
// and not by the text. Runs of characters and further attempts are paid for from `steps`, so the time is
// bounded, too.
#include "src/tools/text/pattern.hpp"

#include <algorithm>
#include <bit>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/utf8.hpp"

namespace holdfast::text {
namespace {

using Kind = PatternItem::Kind;
constexpr std::size_t none = Pattern::none;

/// Backtracking over one text. What follows a group is a chain on the stack, as deep as groups are nested.
class Matcher {
 public:
  Matcher(std::string_view text, std::uint64_t& steps, const std::string& expression)
      : text_(text), steps_(steps), expression_(expression) {}

  struct Rest {
    const PatternBranch* branch;
    std::size_t item;
    const Rest* then;
  };

  std::size_t match(const PatternBranch& branch, std::size_t item, const Rest* then, std::size_t at) {
    for (; item < branch.size(); ++item) {
      const PatternItem& now = branch[item];
      if (now.kind == Kind::set) {
        const std::size_t least_end = run(now.set, at, now.least);
        if (least_end == none) return none;
        if (now.least == now.most) {
          at = least_end;
          continue;
        }
        std::size_t end = run_on(now.set, least_end, now.most - now.least);
        if (now.possessive || end == least_end || (item + 1 == branch.size() && then == nullptr)) {
          at = end;
          continue;
        }
        for (;;) {  // the longest first
          const std::size_t found = match(branch, item + 1, then, end);
          if (found != none || end == least_end) return found;
          spend(1);
          do --end;
          while (utf8::continues(text_[end]));
        }
      }
      if (now.kind == Kind::group) {
        const Rest rest = {&branch, item + 1, then};
        for (const PatternBranch& inner : now.branches) {
          spend(1);  // it may be empty: then nothing else counts how many ways there are
          if (const std::size_t found = match(inner, 0, &rest, at); found != none) return found;
        }
        if (now.least > 0) return none;
        continue;
      }
      const bool found =
          std::any_of(now.branches.begin(), now.branches.end(), [&](const PatternBranch& inner) {
            spend(1);
            return match(inner, 0, nullptr, at) != none;
          });
      if (found != (now.kind == Kind::ahead)) return none;
    }
    return then != nullptr ? match(*then->branch, then->item, then->then, at) : at;
  }

 private:
  void spend(std::uint64_t count) {
    if (steps_ < count) {
      throw Error(Exit::usage, "cannot cut this text into words",
                  "the tokenizer's pattern " + expression_ + " takes too long on it",
                  "Use another tokenizer?");
    }
    steps_ -= count;
  }
  bool fits(const CharacterSet& set, std::size_t at) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    return byte < 0x80 ? set.has_ascii(byte) : set.has(utf8::code_point(text_.data() + at));
  }
  /// Behind exactly `count` characters of the set, or none.
  std::size_t run(const CharacterSet& set, std::size_t at, std::uint32_t count) {
    if (count > 1) spend(count);
    for (; count > 0; --count) {
      if (at == text_.size() || !fits(set, at)) return none;
      at += utf8::character_bytes(text_[at]);
    }
    return at;
  }
  /// Behind as many as there are, at most `most`.
  std::size_t run_on(const CharacterSet& set, std::size_t at, std::uint32_t most) {
    const std::size_t first = at;
    for (; most > 0 && at < text_.size() && fits(set, at); --most) at += utf8::character_bytes(text_[at]);
    spend(at - first);
    return at;
  }

  std::string_view text_;
  std::uint64_t& steps_;
  const std::string& expression_;
};

bool can_be_empty(const std::vector<PatternBranch>& branches);
bool can_be_empty(const PatternItem& item) {
  if (item.kind == Kind::ahead || item.kind == Kind::not_ahead || item.least == 0) return true;
  return item.kind == Kind::group && can_be_empty(item.branches);
}
bool can_be_empty(const std::vector<PatternBranch>& branches) {
  return std::any_of(branches.begin(), branches.end(), [](const PatternBranch& branch) {
    return std::all_of(branch.begin(), branch.end(),
                       [](const PatternItem& item) { return can_be_empty(item); });
  });
}

/// Marks the bytes with which a match can begin. What looks ahead only narrows that, so it is passed over.
void mark_first(const std::vector<PatternBranch>& branches, std::bitset<256>& first) {
  for (const PatternBranch& branch : branches) {
    for (const PatternItem& item : branch) {
      if (item.kind == Kind::group) mark_first(item.branches, first);
      if (item.kind == Kind::set) {
        for (unsigned c = 0; c < 256; ++c) {
          if (c >= 0x80 || item.set.has_ascii(static_cast<unsigned char>(c))) first.set(c);
        }
      }
      if (!can_be_empty(item)) break;
    }
  }
}

}  // namespace

void CharacterSet::ignore_case() {
  for (std::uint32_t c = 'a'; c <= 'z'; ++c) {
    const auto in = [&](std::uint32_t wanted) {
      return std::any_of(ranges_.begin(), ranges_.end(),
                         [&](const auto& range) { return range.first <= wanted && wanted <= range.second; });
    };
    if (!in(c) && !in(c - 'a' + 'A')) continue;
    add(c, c), add(c - 'a' + 'A', c - 'a' + 'A');
    if (c == 's') add(0x17F, 0x17F);
    if (c == 'k') add(0x212A, 0x212A);
  }
}

void CharacterSet::finish() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merged;
  for (const auto& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().second + 1)
      merged.back().second = std::max(merged.back().second, range.second);
    else
      merged.push_back(range);
  }
  ranges_ = std::move(merged);
  for (std::uint32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = computed(c);
}

bool CharacterSet::computed(std::uint32_t c) const {
  if ((categories_ & bit(categories()[c])) != 0) return !negated_;
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), c,
                       [](std::uint32_t value, const auto& range) { return value < range.first; });
  return (after != ranges_.begin() && c <= std::prev(after)->second) != negated_;
}

Pattern::Pattern(std::string_view expression)
    : expression_(expression), branches_(parse_pattern(expression)) {
  if (can_be_empty(branches_)) {
    throw Error(Exit::usage, "cannot use the tokenizer's pattern " + expression_,
                "it matches the empty text, so it does not say where to cut");
  }
  find_first_bytes();
}

Pattern Pattern::literal(std::string_view text) {
  Pattern pattern;
  pattern.expression_ = text;
  if (text.empty()) throw Error(Exit::usage, "cannot cut at the tokenizer's pattern", "it is empty");
  if (text.size() > longest_pattern)
    throw Error(Exit::usage, "cannot cut at the tokenizer's pattern",
                "it is longer than " + std::to_string(longest_pattern) + " bytes");
  PatternBranch branch;
  for (std::size_t at = 0; at < text.size(); at += utf8::character_bytes(text[at])) {
    PatternItem item;
    item.set.add(utf8::code_point(text.data() + at), utf8::code_point(text.data() + at));
    item.set.finish();
    branch.push_back(std::move(item));
  }
  pattern.branches_.push_back(std::move(branch));
  pattern.find_first_bytes();
  return pattern;
}

void Pattern::find_first_bytes() {
  if (branches_.size() > 64) {
    throw Error(Exit::usage, "cannot use the tokenizer's pattern " + expression_,
                "it has more than 64 branches");
  }
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    std::bitset<256> first;
    mark_first({branches_[i]}, first);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (first[byte]) first_[byte] |= std::uint64_t{1} << i;
    }
  }
}

std::size_t Pattern::match(std::string_view text, std::size_t at, std::uint64_t& steps) const {
  if (at >= text.size()) return none;
  Matcher matcher(text, steps, expression_);
  for (std::uint64_t left = first_[static_cast<unsigned char>(text[at])]; left != 0; left &= left - 1) {
    const auto branch = as_size(std::countr_zero(left));
    if (const std::size_t end = matcher.match(branches_[branch], 0, nullptr, at); end != none) return end;
  }
  return none;
}

}  // namespace holdfast::text
