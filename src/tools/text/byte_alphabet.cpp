#include "src/tools/text/byte_alphabet.hpp"

#include <array>

#include "src/base/utf8.hpp"

namespace holdfast::text {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<char32_t, 256> character = {};
  std::array<int, 0x100 + 68> byte = {};  ///< by character; -1: none

  constexpr Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = stands_for_itself(b) ? b : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};
constexpr Alphabet alphabet;

}  // namespace

char32_t spelled(unsigned char byte) { return alphabet.character[byte]; }

std::optional<std::string> unspelled(std::string_view piece) {
  std::string bytes;
  for (std::size_t at = 0; at < piece.size(); at += utf8::character_bytes(piece[at])) {
    const std::uint32_t c = utf8::code_point(piece.data() + at);
    if (c >= alphabet.byte.size() || alphabet.byte[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet.byte[c]));
  }
  return bytes;
}

std::string spelled(std::string_view bytes) {
  std::string piece;
  for (const char byte : bytes) utf8::append(piece, spelled(static_cast<unsigned char>(byte)));
  return piece;
}

}  // namespace holdfast::text
