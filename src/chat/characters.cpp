#include "src/chat/characters.hpp"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

namespace holdfast::chat {
namespace {

std::string utf8(const icu::UnicodeString& text) {
  std::string bytes;
  return text.toUTF8String(bytes);
}

icu::UnicodeString utf16(std::string_view text) {
  return icu::UnicodeString::fromUTF8({text.data(), static_cast<std::int32_t>(text.size())});
}

std::string title_of(char32_t character) {
  icu::UnicodeString one(static_cast<UChar32>(character));
  return utf8(one.toTitle(nullptr, icu::Locale::getRoot()));
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
  const std::size_t joined = parts.size() - static_cast<std::size_t>(most);
  const Range head{0, parts[joined - 1].second};
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(joined));
  parts.insert(parts.begin(), head);
  return parts;
}

}  // namespace

char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) -> char32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const char32_t lead = byte(at);
  const std::size_t length = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 1;
  char32_t character = length == 1 ? lead : lead & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return ++at, lead;
    character = character << 6 | (byte(at + i) & 0x3F);
  }
  at += length;
  return character;
}

void put_character(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
}

bool is_space(char32_t c) {
  return (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= ' ') || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= ' ';
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & (U_GC_C_MASK | U_GC_Z_MASK)) == 0;
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
    while (last > first && end - last < 4 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
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

std::string upper(std::string_view text) { return utf8(utf16(text).toUpper(icu::Locale::getRoot())); }

std::string lower(std::string_view text) { return utf8(utf16(text).toLower(icu::Locale::getRoot())); }

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
    const bool cased = u_hasBinaryProperty(static_cast<UChar32>(character), UCHAR_CASED);
    out += in_word ? lower(text.substr(first, at - first)) : title_of(character);
    in_word = cased;
  }
  return out;
}

}  // namespace holdfast::chat
