#pragma once
// What cutting text into words needs to know of Unicode. The tables are in this library, so that the tokens
// of a text do not depend on which version of a regular expression library a machine has.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::text {

/// General categories (Unicode Standard, section 4.5), in the order of the table.
enum class Category : std::uint8_t {
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Co,
  Cs,
  Cn
};
inline constexpr std::array<std::string_view, 30> category_names = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs", "Cn"};
inline constexpr std::uint32_t end_of_unicode = 0x110000;

/// The category of every code point, of Unicode 16.0.
const std::array<Category, end_of_unicode>& categories();

/// Bit 1 << Category for each.
inline constexpr std::uint32_t bit(Category category) { return 1u << static_cast<unsigned>(category); }
inline constexpr std::uint32_t mark_categories = bit(Category::Mn) | bit(Category::Mc) | bit(Category::Me);

/// Bytes of the character that begins with `lead`, in valid UTF-8.
inline std::size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
/// The code point at the beginning of `text`, which is valid UTF-8 and not empty.
inline std::uint32_t code_point(const char* text) {
  const auto byte = [&](int i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  switch (character_bytes(*text)) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}
/// A byte inside a character, not its first.
inline bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

void append_utf8(std::string& text, std::uint32_t code_point);
/// Well-formed in the sense of Table 3-7 of the Unicode Standard.
bool valid_utf8(std::string_view text);

}  // namespace holdfast::text
