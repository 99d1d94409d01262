// next_character() decodes one character, and most functions here walk by it. A byte that is no UTF-8 counts
// as one character, so that each text has characters, and nothing is refused.
//
// White space and the ends of lines are listed as Python has them. What can be printed, and the case of
// letters, comes from utf8proc by general category; `special` has the letters whose upper case is several
// letters, and lower() knows the final sigma and the dotted I. is_cased() takes the categories Lu, Ll and Lt
// only, and so leaves out a few signs and modifiers that have a case for Python.
//
// split() and stripped() return ranges of bytes, so that their caller can cut a Text together with what is
// known of its origin.
#include "src/tools/chat/characters.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/utf8.hpp"

namespace holdfast::chat {
namespace {

/// Characters that become several (Unicode's SpecialCasing.txt, those that words have).
struct Special {
  char32_t character;
  const char *upper, *title;
};
constexpr std::array<Special, 8> special = {{{0xDF, "SS", "Ss"},
                                             {0xFB00, "FF", "Ff"},
                                             {0xFB01, "FI", "Fi"},
                                             {0xFB02, "FL", "Fl"},
                                             {0xFB03, "FFI", "Ffi"},
                                             {0xFB04, "FFL", "Ffl"},
                                             {0xFB05, "ST", "St"},
                                             {0xFB06, "ST", "St"}}};

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

/// Letters with a case. Unicode also counts a few signs and modifiers.
bool is_cased(char32_t c) {
  const auto category = category_of(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

void put_upper(std::string& out, char32_t c, bool title) {
  for (const Special& s : special)
    if (s.character == c) {
      out += title ? s.title : s.upper;
      return;
    }
  const auto code = static_cast<utf8proc_int32_t>(c);
  utf8::append(out, static_cast<char32_t>(title ? utf8proc_totitle(code) : utf8proc_toupper(code)));
}

std::string title_of(char32_t character) {
  std::string out;
  put_upper(out, character, true);
  return out;
}

bool ends_line(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::vector<Range> split_spaces(std::string_view text, std::int64_t most) {
  std::vector<Range> parts;
  std::size_t at = 0;
  while (true) {
    at += stripped(text.substr(at), nullptr, true, false).first;
    if (at == text.size()) return parts;
    const std::size_t first = at;
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.emplace_back(first, text.size());
      return parts;
    }
    std::size_t end = at;
    while (at < text.size() && !is_space(next_character(text, at))) end = at;
    parts.emplace_back(first, end);
    at = end;
  }
}

std::vector<Range> rsplit_spaces(std::string_view text, std::int64_t most) {
  std::vector<Range> parts = split_spaces(text, -1);
  if (most < 0 || static_cast<std::int64_t>(parts.size()) <= most) return parts;
  const std::size_t joined = parts.size() - as_size(most);
  const Range head{0, parts[joined - 1].second};
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(joined));
  parts.insert(parts.begin(), head);
  return parts;
}

}  // namespace

char32_t next_character(std::string_view text, std::size_t& at) {
  const utf8::Sequence next = utf8::first_sequence(text.substr(at));
  if (!next.whole()) return static_cast<unsigned char>(text[at++]);
  const std::size_t first = std::exchange(at, at + next.bytes);
  return utf8::code_point(text.data() + first);
}

bool is_space(char32_t c) {
  return (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= ' ') || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= ' ';
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) next_character(text, at);
  return count;
}

std::vector<std::size_t> character_starts(std::string_view text) {
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.size(); next_character(text, at)) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

Range stripped(std::string_view text, const std::string_view* chars, bool left, bool right) {
  std::u32string wanted;
  for (std::size_t at = 0; chars && at < chars->size();) wanted += next_character(*chars, at);
  const auto goes = [&](char32_t c) { return chars ? wanted.find(c) != std::u32string::npos : is_space(c); };
  std::size_t first = 0, end = text.size();
  while (left && first < end) {
    std::size_t next = first;
    if (!goes(next_character(text, next))) break;
    first = next;
  }
  while (right && first < end) {
    std::size_t last = end - 1;
    while (last > first && end - last < 4 && utf8::continues(text[last])) --last;
    std::size_t behind = last;
    char32_t character = next_character(text, behind);
    if (behind != end) {  // no UTF-8: its last byte alone
      last = end - 1;
      character = static_cast<unsigned char>(text[last]);
    }
    if (!goes(character)) break;
    end = last;
  }
  return {first, end};
}

std::vector<Range> split(std::string_view text, std::string_view separator, std::int64_t most,
                         bool from_right) {
  if (separator.empty()) return from_right ? rsplit_spaces(text, most) : split_spaces(text, most);
  std::vector<Range> parts;
  const auto more = [&] { return most < 0 || static_cast<std::int64_t>(parts.size()) < most; };
  if (from_right) {
    std::size_t end = text.size();
    while (more()) {
      const std::size_t at =
          end < separator.size() ? std::string_view::npos : text.rfind(separator, end - separator.size());
      if (at == std::string_view::npos) break;
      parts.emplace_back(at + separator.size(), end);
      end = at;
    }
    parts.emplace_back(0, end);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  std::size_t first = 0;
  while (more()) {
    const std::size_t at = text.find(separator, first);
    if (at == std::string_view::npos) break;
    parts.emplace_back(first, at);
    first = at + separator.size();
  }
  parts.emplace_back(first, text.size());
  return parts;
}

std::vector<Range> lines_of(std::string_view text) {
  std::vector<Range> lines;
  std::size_t first = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t character = next_character(text, at);
    if (!ends_line(character)) continue;
    if (character == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(first, end);
    first = at;
  }
  if (first < text.size()) lines.emplace_back(first, text.size());
  return lines;
}

std::string upper(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) put_upper(out, next_character(text, at), false);
  return out;
}

std::string lower(std::string_view text) {
  constexpr char32_t sigma = 0x3A3, final_sigma = 0x3C2, dotted_i = 0x130;
  std::string out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    std::size_t behind = at;
    const bool ends = at == text.size() || !is_cased(next_character(text, behind));
    if (c == sigma && in_word && ends)
      utf8::append(out, final_sigma);
    else if (c == dotted_i)
      out += "i\xCC\x87";
    else
      utf8::append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    in_word = is_cased(c);
  }
  return out;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  std::size_t at = 0;
  const char32_t first = next_character(text, at);
  return title_of(first) + lower(text).substr(lower(text.substr(0, at)).size());
}

std::string titled(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t first = at;
    const char32_t character = next_character(text, at);
    const bool cased = is_cased(character);
    out += in_word ? lower(text.substr(first, at - first)) : title_of(character);
    in_word = cased;
  }
  return out;
}

}  // namespace holdfast::chat
