#include "slurm/hostlist.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "src/base/error.hpp"

namespace holdfast::slurm {
namespace {

constexpr std::size_t max_digits = 18;  // fits 64 bits
constexpr std::size_t max_name = 255;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
}

std::uint64_t to_number(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

/// Zeros in front are part of a name: "007" is 7 in three digits.
std::string padded(std::uint64_t value, std::size_t width) {
  std::string text = std::to_string(value);
  if (text.size() < width) text.insert(0, width - text.size(), '0');
  return text;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<std::string> list() {
    std::vector<std::string> names;
    if (text_.empty()) return names;
    for (;;) {
      std::vector<std::string> more = host();
      if (names.size() + more.size() > max_hosts) fail_size();
      std::move(more.begin(), more.end(), std::back_inserter(names));
      if (at_ == text_.size()) return names;
      take(',');
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    const std::string shown(text_.substr(0, 200));
    throw Error(Exit::usage, "'" + shown + "' is not a hostlist",
                why + " at character " + std::to_string(at_ + 1), "Write it as in dgx[001-003,006]?");
  }
  [[noreturn]] static void fail_size() {
    throw Error(Exit::usage, "a hostlist stands for too many names",
                "more than " + std::to_string(max_hosts));
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void take(char wanted) {
    if (at_ >= text_.size() || text_[at_] != wanted) fail(std::string("'") + wanted + "' is missing");
    ++at_;
  }

  /// One comma-separated item: plain text and brackets in turn.
  std::vector<std::string> host() {
    std::vector<std::string> names = {""};
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] != ',') {
      if (text_[at_] == '[') {
        const std::vector<std::string> numbers = bracket();
        if (names.size() * numbers.size() > max_hosts) fail_size();
        std::vector<std::string> product;
        product.reserve(names.size() * numbers.size());
        for (const auto& name : names)
          for (const auto& number : numbers) product.push_back(name + number);
        names = std::move(product);
      } else {
        if (!is_name_character(text_[at_])) fail("a character that no host name has");
        for (auto& name : names) name += text_[at_];
        ++at_;
      }
      if (names.front().size() > max_name) fail("a name of more than 255 characters");
    }
    if (at_ == start) fail("an empty name");
    return names;
  }

  std::vector<std::string> bracket() {
    take('[');
    std::vector<std::string> numbers;
    for (;;) {
      const std::string_view low = digits();
      std::string_view high = low;
      if (peek() == '-') {
        ++at_;
        high = digits();
      }
      const std::uint64_t first = to_number(low), last = to_number(high);
      if (last < first) fail("a range that runs backwards");
      if (high.size() < low.size() || (high.size() > low.size() && high.front() == '0'))
        fail("a range whose ends are padded differently");
      if (last - first >= max_hosts || numbers.size() + (last - first) >= max_hosts) fail_size();
      for (std::uint64_t value = first; value <= last; ++value) numbers.push_back(padded(value, low.size()));
      if (peek() == ']') break;
      take(',');
    }
    take(']');
    return numbers;
  }

  std::string_view digits() {
    const std::size_t start = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == start) fail("a number is missing");
    if (at_ - start > max_digits) fail("a number of more than 18 digits");
    return text_.substr(start, at_ - start);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// A name cut before its last digits (at most max_digits of them).
struct Cut {
  std::string_view stem, digits;
};

Cut cut(std::string_view name) {
  std::size_t at = name.size();
  while (at > 0 && name.size() - at < max_digits && is_digit(name[at - 1])) --at;
  return {name.substr(0, at), name.substr(at)};
}

/// May `digits` come right after `last` in a range whose first number is `first`?
bool extends(std::string_view first, std::string_view last, std::string_view digits) {
  if (digits.empty() || to_number(digits) != to_number(last) + 1) return false;
  return digits.size() == last.size() || (first.front() != '0' && digits.front() != '0');
}

}  // namespace

std::vector<std::string> expand(std::string_view list) { return Parser(list).list(); }

std::string compress(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size();) {
    const Cut head = cut(names[i]);
    // The ranges of all names from i on that share head's stem.
    std::string ranges;
    std::size_t end = i;
    while (end < names.size() && !head.digits.empty()) {
      const Cut first = cut(names[end]);
      if (first.stem != head.stem || first.digits.empty()) break;
      std::string_view last = first.digits;
      for (++end; end < names.size(); ++end) {
        const Cut next = cut(names[end]);
        if (next.stem != head.stem || !extends(first.digits, last, next.digits)) break;
        last = next.digits;
      }
      if (!ranges.empty()) ranges += ',';
      ranges += first.digits;
      if (last.data() != first.digits.data()) (ranges += '-') += last;
    }
    if (!out.empty()) out += ',';
    if (end <= i + 1) {
      out += names[i];
      end = i + 1;
    } else {
      ((((out += head.stem) += '[') += ranges) += ']');
    }
    i = end;
  }
  return out;
}

}  // namespace holdfast::slurm
