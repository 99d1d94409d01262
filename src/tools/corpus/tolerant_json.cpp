#include "src/tools/corpus/tolerant_json.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

namespace holdfast::corpus {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool in_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' || c == '.';
}

/// The bytes of the number that `text` begins with, by JSON's grammar; 0: it is none. `whole`: it is an
/// integer.
std::size_t number_bytes(std::string_view text, bool& whole) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const std::size_t first = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at - first;
  };
  const bool zero = at < text.size() && text[at] == '0';
  const std::size_t before = digits();
  if (before == 0 || (zero && before > 1)) return 0;
  whole = true;
  if (at < text.size() && text[at] == '.') {
    ++at;
    whole = false;
    if (digits() == 0) return 0;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    whole = false;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return 0;
  }
  return at;
}

bool fits(std::string_view number, bool whole) {
  if (!whole) return std::isfinite(std::strtod(std::string(number).c_str(), nullptr));
  const char* const end = number.data() + number.size();
  std::int64_t small = 0;
  std::uint64_t large = 0;
  return std::from_chars(number.data(), end, small).ec == std::errc() ||
         std::from_chars(number.data(), end, large).ec == std::errc();
}

/// The number after "\u", or nothing.
std::optional<unsigned> escaped(std::string_view text) {
  if (text.size() < 6 || !text.starts_with("\\u")) return std::nullopt;
  unsigned code = 0;
  const auto end = std::from_chars(text.data() + 2, text.data() + 6, code, 16);
  if (end.ptr != text.data() + 6) return std::nullopt;
  return code;
}
bool is_first_half(unsigned code) { return code >= 0xD800 && code < 0xDC00; }
bool is_second_half(unsigned code) { return code >= 0xDC00 && code < 0xE000; }

class Rewriter {
 public:
  Rewriter(std::string_view line, std::string_view number, std::uint64_t& repaired)
      : line_(line), number_(number), repaired_(repaired) {}

  std::string run() {
    out_.reserve(line_.size());
    while (at_ < line_.size()) {
      const char c = line_[at_];
      if (c == '"')
        text();
      else if (in_word(c))
        word();
      else
        copy(1);
    }
    return std::move(out_);
  }

 private:
  std::string_view left() const { return line_.substr(at_); }
  void copy(std::size_t bytes) {
    out_.append(line_, at_, bytes);
    at_ += bytes;
  }
  void put(std::string_view instead, std::size_t bytes) {
    out_ += instead;
    at_ += bytes;
  }

  void text() {
    copy(1);
    while (at_ < line_.size() && line_[at_] != '"') {
      if (line_[at_] != '\\') {
        copy(std::min(line_.find_first_of("\"\\", at_), line_.size()) - at_);
        continue;
      }
      const auto code = escaped(left());
      if (!code) {
        copy(std::min<std::size_t>(2, line_.size() - at_));
        continue;
      }
      const auto next = escaped(line_.substr(at_ + 6));
      if (is_first_half(*code) && next && is_second_half(*next)) {
        copy(12);
      } else if (is_first_half(*code) || is_second_half(*code)) {
        put("\\ufffd", 6);
        ++repaired_;
      } else {
        copy(6);
      }
    }
    copy(std::min<std::size_t>(1, line_.size() - at_));
  }

  /// A number, or what Python takes for one; or any other word, which stays.
  void word() {
    std::size_t bytes = 1;
    while (at_ + bytes < line_.size() && in_word(line_[at_ + bytes])) ++bytes;
    const std::string_view found = line_.substr(at_, bytes);
    bool whole = false;
    const bool replaced = found == "NaN" || found == "Infinity" || found == "-Infinity" ||
                          (number_bytes(found, whole) == bytes && !fits(found, whole));
    replaced ? put(number_, bytes) : copy(bytes);
  }

  std::string_view line_, number_;
  std::uint64_t& repaired_;
  std::string out_;
  std::size_t at_ = 0;
};

}  // namespace

std::string tolerant_json(std::string_view line, std::string_view number, std::uint64_t& repaired) {
  return Rewriter(line, number, repaired).run();
}

}  // namespace holdfast::corpus
