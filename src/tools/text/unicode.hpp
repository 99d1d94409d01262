#pragma once
// What cutting text into words needs to know of Unicode. The tables are in this library, so that the tokens
// of a text do not depend on which version of a regular expression library a machine has.
#include <array>
#include <cstdint>
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

}  // namespace holdfast::text
