#include "src/tools/corpus/words.hpp"

#include <array>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/utf8.hpp"

namespace holdfast::corpus {
namespace {

enum class Kind : std::uint8_t {
  letter,    ///< part of a word
  upper_1,   ///< a capital; the small letter is the next character,
  upper_32,  ///< or 32 further on,
  upper_80,  ///< or 80
  space,     ///< separates words
  left_out,  ///< neither
  word,      ///< a word of its own
};

struct KindRange {
  char32_t first, last;
  Kind kind;
  int step = 1;  ///< 2: every other character
};

// A later row wins.
constexpr KindRange ranges[] = {
    {0x00, 0x7f, Kind::left_out},      // ASCII
    {0x09, 0x0d, Kind::space},         // tab to carriage return
    {' ', ' ', Kind::space},           // blank
    {'0', '9', Kind::letter},          // digits
    {'A', 'Z', Kind::upper_32},        // Latin
    {'a', 'z', Kind::letter},          // Latin
    {0x80, 0xbf, Kind::left_out},      // Latin-1
    {0x85, 0x85, Kind::space},         // next line
    {0xa0, 0xa0, Kind::space},         // no-break space
    {0xb2, 0xb3, Kind::letter},        // superscripts
    {0xb9, 0xb9, Kind::letter},        // superscript one
    {0xbc, 0xbe, Kind::letter},        // fractions
    {0xaa, 0xaa, Kind::letter},        // ordinal
    {0xba, 0xba, Kind::letter},        // ordinal
    {0xb5, 0xb5, Kind::letter},        // micro
    {0xc0, 0xde, Kind::upper_32},      // Latin-1 capitals
    {0xd7, 0xd7, Kind::left_out},      // times
    {0xf7, 0xf7, Kind::left_out},      // divided by
    {0x100, 0x136, Kind::upper_1, 2},  // Latin Extended-A: pairs
    {0x139, 0x147, Kind::upper_1, 2},  // pairs
    {0x14a, 0x176, Kind::upper_1, 2},  // pairs
    {0x179, 0x17d, Kind::upper_1, 2},  // pairs
    {0x391, 0x3a9, Kind::upper_32},    // Greek
    {0x400, 0x40f, Kind::upper_80},    // Cyrillic
    {0x410, 0x42f, Kind::upper_32},    // Cyrillic
    {0xe00, 0xeff, Kind::word},        // Thai, Lao
    {0x1000, 0x109f, Kind::word},      // Myanmar
    {0x1680, 0x1680, Kind::space},     // Ogham
    {0x1780, 0x17ff, Kind::word},      // Khmer
    {0x2000, 0x206f, Kind::left_out},  // general punctuation, characters without width
    {0x2000, 0x200a, Kind::space},     // blanks of many widths
    {0x2028, 0x2029, Kind::space},     // line, paragraph
    {0x202f, 0x202f, Kind::space},     // narrow no-break space
    {0x205f, 0x205f, Kind::space},     // mathematical space
    {0x2e80, 0x2fff, Kind::word},      // Han radicals
    {0x3000, 0x3000, Kind::space},     // ideographic space
    {0x3001, 0x303f, Kind::left_out},  // CJK punctuation
    {0x3005, 0x3007, Kind::word},      // iteration mark, closing mark, zero
    {0x3040, 0x31ff, Kind::word},      // kana, bopomofo
    {0x3400, 0x4dbf, Kind::word},      // Han
    {0x4e00, 0x9fff, Kind::word},      // Han
    {0xf900, 0xfaff, Kind::word},      // Han, for compatibility
    {0xfe00, 0xfe0f, Kind::left_out},  // variation selectors
    {0xfeff, 0xfeff, Kind::left_out},  // byte order mark
    {0xff00, 0xff65, Kind::left_out},  // full-width punctuation
    {0xff10, 0xff19, Kind::letter},    // full-width digits
    {0xff21, 0xff3a, Kind::upper_32},  // full-width Latin
    {0xff41, 0xff5a, Kind::letter},    // full-width Latin
    {0xff66, 0xff9f, Kind::word},      // half-width kana
};

constexpr char32_t plane = 0x10000;

constexpr std::array<Kind, plane> table_of_kinds() {
  std::array<Kind, plane> kinds{};
  for (const KindRange& range : ranges)
    for (char32_t c = range.first; c <= range.last; c += static_cast<char32_t>(range.step))
      kinds[c] = range.kind;
  return kinds;
}
constexpr std::array<Kind, plane> kinds = table_of_kinds();

constexpr Kind kind_of(char32_t c) {
  if (c < plane) return kinds[c];
  return c >= 0x20000 && c <= 0x3ffff ? Kind::word : Kind::letter;  // the planes of Han
}

struct Character {
  char32_t code = 0;
  std::size_t bytes = 1;
};

/// The character that begins at `at` with a byte of 0x80 or more. What is no UTF-8 is read as something, but
/// never past `end`.
Character beyond_ascii(const char* at, const char* end) {
  const std::size_t bytes = utf8::continues(*at) ? 1 : utf8::character_bytes(*at);
  if (bytes == 1 || bytes > as_size(end - at)) return {static_cast<unsigned char>(*at), 1};
  return {utf8::code_point(at), bytes};
}

// FNV-1a over characters; mix64 at the end spreads its weak low bits.
constexpr std::uint64_t begin_word = 0xcbf29ce484222325u, times = 0x100000001b3u;
constexpr std::uint64_t add(std::uint64_t hash, char32_t c) { return (hash ^ c) * times; }

constexpr char32_t small(char32_t c, Kind kind) {
  switch (kind) {
    case Kind::upper_1:
      return c + 1;
    case Kind::upper_32:
      return c + 32;
    case Kind::upper_80:
      return c + 80;
    default:
      return c;
  }
}

/// Letters and digits as small letters; 0: a look at the character's kind decides.
constexpr std::array<unsigned char, 256> table_of_letters() {
  std::array<unsigned char, 256> letters{};
  for (char32_t c = 0; c < 0x80; ++c)
    if (kind_of(c) == Kind::letter || kind_of(c) == Kind::upper_32)
      letters[c] = static_cast<unsigned char>(small(c, kind_of(c)));
  return letters;
}
constexpr std::array<unsigned char, 256> ascii_letters = table_of_letters();

}  // namespace

std::size_t Words::next(std::span<std::uint64_t> out) {
  const char* at = rest_.data();
  const char* const end = at + rest_.size();
  std::size_t count = 0;
  std::uint64_t word = begin_word;
  bool in_word = false;
  const auto close = [&] {
    if (!in_word) return;
    out[count++] = mix64(word);
    word = begin_word;
    in_word = false;
  };
  while (at < end && count < out.size()) {
    const auto byte = static_cast<unsigned char>(*at);
    if (const unsigned char letter = ascii_letters[byte]; letter != 0) {
      word = add(word, letter);
      in_word = true;
      ++at;
      continue;
    }
    const Character here = byte < 0x80 ? Character{byte, 1} : beyond_ascii(at, end);
    const Kind kind = kind_of(here.code);
    if (kind == Kind::word && in_word) {
      close();  // and come back for the character
      continue;
    }
    at += here.bytes;
    if (kind == Kind::space) {
      close();
    } else if (kind != Kind::left_out) {
      word = add(word, small(here.code, kind));
      in_word = true;
      if (kind == Kind::word) close();
    }
  }
  if (at == end && count < out.size()) close();
  rest_ = std::string_view(at, as_size(end - at));
  return count;
}

}  // namespace holdfast::corpus
