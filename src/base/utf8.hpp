#pragma once
// Characters of UTF-8, well-formed in the sense of Table 3-7 of the Unicode Standard. Places are bytes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::utf8 {

/// U+FFFD, for what is not well-formed.
inline constexpr std::string_view replacement = "\xEF\xBF\xBD";

/// A byte inside a character, not its first.
inline bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

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
void append(std::string& text, std::uint32_t code_point);

/// What a text begins with.
struct Sequence {
  std::size_t bytes = 1;   ///< a character's, or the maximal malformed subpart's
  std::size_t wanted = 0;  ///< of a character with this first byte; 0: none begins so
  bool whole() const { return bytes == wanted; }
};
/// `text` is not empty.
Sequence first_sequence(std::string_view text);

bool valid(std::string_view text);
/// Replaces every maximal malformed subpart of `text` by U+FFFD; returns how many were replaced.
std::uint64_t repair(std::string& text);
/// Moves what of `text` is settled to the result: whole characters, and U+FFFD for each part that no
/// following byte can make one. What may still become a character stays.
std::string take_settled(std::string& text);

}  // namespace holdfast::utf8
