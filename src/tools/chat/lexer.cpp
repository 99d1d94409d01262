// Newlines are made "\n" first. Then run() calls data() until all is read: each call takes the text up to the
// next tag, and that tag. comment() skips to its end; inside() cuts the other tags into names, numbers,
// strings and signs, until the closing mark, which counts only where no bracket is open.
//
// White space is dropped at both ends of a tag: data() cuts the text before it (a "-", or white space alone
// between the line's beginning and a block or comment), and leave_tag() skips what follows (a "-", or the
// newline behind a block or comment).
//
// Only advance() moves the place, and so each token has its line and column. A tag, comment or string without
// end, a bracket without partner, and a number, escape or character that is not understood are refused there.
// Which names exist is not decided here.
#include "src/tools/chat/lexer.hpp"

#include <algorithm>
#include <array>

#include "src/base/error.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/chat/characters.hpp"

namespace holdfast::chat {
namespace {

using Kind = Token::Kind;

/// One newline at the end is dropped, and all are made "\n".
std::string normal_newlines(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool starts_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normal_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    put(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool ahead(std::string_view text) const { return rest().starts_with(text); }

  void put(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), position_}); }

  void advance(std::size_t bytes) {
    for (const std::size_t end = at_ + bytes; at_ < end; ++at_) {
      ++position_.column;
      if (source_[at_] == '\n') position_ = {position_.line + 1, 1};
    }
  }

  void skip_spaces() { advance(stripped(rest(), nullptr, true, false).first); }

  /// The text up to the next tag, and the tag.
  void data() {
    std::size_t tag = at_;
    do {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        put(Kind::data, std::string(rest()));
        return advance(source_.size() - at_);
      }
    } while (std::string_view("%{#").find(source_[tag + 1]) == std::string_view::npos && ++tag);
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') {
      text = text.substr(0, stripped(text, nullptr, false, true).second);
    } else if (sign != '+' && kind != '{') {
      // A tag that stands alone on its line takes what is before it along.
      const std::size_t line = text.rfind('\n') + 1;
      const bool whole_line = line > 0 || line_starts_;
      if (whole_line && stripped(text.substr(line), nullptr, true, false).first == text.size() - line)
        text = text.substr(0, line);
    }
    if (!text.empty()) put(Kind::data, std::string(text));
    advance(tag - at_);
    const Position begun = position_;
    if (kind != '#') put(kind == '{' ? Kind::print_begin : Kind::block_begin, "");
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') return comment(begun);
    inside(kind == '{' ? "}}" : "%}", kind == '%', begun);
  }

  void comment(Position begun) {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) refuse(begun, "this comment does not end");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end - at_);
    leave_tag(sign, true);
  }

  /// Behind "%}", "}}" or "#}", of which two bytes are still ahead.
  void leave_tag(char sign, bool trims) {
    advance(2);
    const std::size_t behind = at_;
    if (sign == '-')
      skip_spaces();
    else if (sign != '+' && trims && ahead("\n"))
      advance(1);
    line_starts_ = at_ > behind && source_[at_ - 1] == '\n';
  }

  void inside(std::string_view closing, bool block, Position begun) {
    std::string open;  // brackets: inside them a closing tag is none
    const Kind end = block ? Kind::block_end : Kind::print_end;
    while (true) {
      skip_spaces();
      if (at_ >= source_.size()) refuse(begun, "this tag does not end");
      const char c = source_[at_];
      const bool signed_end = (c == '-' || (c == '+' && block)) && rest().substr(1).starts_with(closing);
      if (open.empty() && (signed_end || ahead(closing))) {
        put(end, "");
        if (signed_end) advance(1);
        return leave_tag(signed_end ? c : ' ', block);
      }
      if (is_digit(c))
        number();
      else if (starts_name(c))
        name();
      else if (c == '\'' || c == '"')
        string();
      else
        sign(open);
    }
  }

  void name() {
    std::size_t end = at_;
    while (end < source_.size() && (starts_name(source_[end]) || is_digit(source_[end]))) ++end;
    put(Kind::name, source_.substr(at_, end - at_));
    advance(end - at_);
  }

  void number() {
    const std::string_view text = rest();
    std::size_t end = 0;
    std::string digits;
    const auto run = [&] {
      for (; end < text.size() && (is_digit(text[end]) || text[end] == '_'); ++end)
        if (text[end] != '_') digits += text[end];
    };
    const auto digit_at = [&](std::size_t i) { return i < text.size() && is_digit(text[i]); };
    run();
    bool real = false;
    const bool behind_dot = at_ > 0 && source_[at_ - 1] == '.';  // messages.0.content
    if (!behind_dot && end < text.size() && text[end] == '.' && digit_at(end + 1)) {
      real = true;
      digits += '.';
      ++end;
      run();
    }
    if (!behind_dot && end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
      const bool has_sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-');
      if (digit_at(end + 1 + (has_sign ? 1 : 0))) {
        real = true;
        digits += 'e';
        ++end;
        if (has_sign) digits += text[end++];
        run();
      }
    }
    if (end < text.size() && starts_name(text[end])) refuse(position_, "this number is not understood");
    put(real ? Kind::real : Kind::integer, digits);
    advance(end);
  }

  void sign(std::string& open) {
    static constexpr std::array<std::string_view, 27> signs = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
        "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "!"};
    const auto found = std::find_if(signs.begin(), signs.end(), [&](std::string_view s) { return ahead(s); });
    if (found == signs.end() || *found == "!" || *found == ";") {
      std::size_t end = at_;
      next_character(source_, end);
      refuse(position_, "unexpected '" + source_.substr(at_, end - at_) + "'");
    }
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (!open.ends_with(c)) refuse(position_, std::string("unexpected '") + c + "'");
      open.pop_back();
    }
    put(Kind::sign, std::string(*found));
    advance(found->size());
  }

  void string() {
    const char quote = source_[at_];
    std::string value;
    std::size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = escape(i + 1, value);
      } else {
        value += source_[i];
      }
    }
    if (i >= source_.size()) refuse(position_, "this string does not end");
    put(Kind::string, std::move(value));
    advance(i + 1 - at_);
  }

  /// Python's escapes. Returns the place of the last byte that belongs to it.
  std::size_t escape(std::size_t i, std::string& value) {
    constexpr std::string_view letters = "\\'\"abfnrtv", meant = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[i];
    if (c == '\n') return i;
    if (const std::size_t which = letters.find(c); which != std::string_view::npos) {
      value += meant[which];
      return i;
    }
    const auto digits = [&](std::size_t first, std::size_t most, char32_t base) {
      char32_t number = 0;
      std::size_t end = first;
      for (; end < source_.size() && end < first + most; ++end) {
        const char d = source_[end];
        const char32_t digit = is_digit(d) ? static_cast<char32_t>(d - '0')
                               : (d | 0x20) >= 'a' && (d | 0x20) <= 'f'
                                   ? static_cast<char32_t>((d | 0x20) - 'a') + 10
                                   : 99;
        if (digit >= base) break;
        number = number * base + digit;
      }
      if (base == 16 && end != first + most) refuse(position_, "an escape in this string is cut");
      if (number > 0x10FFFF || (number >= 0xD800 && number < 0xE000))
        refuse(position_, "an escape in this string is no character");
      utf8::append(value, number);
      return end - 1;
    };
    if (c >= '0' && c <= '7') return digits(i, 3, 8);
    if (c == 'x' || c == 'u' || c == 'U') return digits(i + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    if (c == 'N') refuse(position_, "\\N{...} is not understood");
    (value += '\\') += c;
    return i;
  }

  std::string source_;
  std::size_t at_ = 0;
  Position position_;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

void refuse(Position at, const std::string& why) {
  throw Error(Exit::usage,
              "the chat template is wrong in line " + std::to_string(at.line) + ", column " +
                  std::to_string(at.column),
              why);
}

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace holdfast::chat
