#include "src/text/unicode.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>

namespace holdfast::text {
namespace {

// Runs of one category: first code point << 5 | category. `scripts/proof/tokenizers_compared.py categories`
// prints it.
constexpr std::uint32_t runs[] = {
#include "src/text/unicode_categories.inc"
};

std::unique_ptr<std::array<Category, end_of_unicode>> unpacked() {
  auto table = std::make_unique<std::array<Category, end_of_unicode>>();
  for (std::size_t i = 0; i < std::size(runs); ++i) {
    const std::uint32_t end = i + 1 < std::size(runs) ? runs[i + 1] >> 5 : end_of_unicode;
    std::fill(table->begin() + (runs[i] >> 5), table->begin() + end, static_cast<Category>(runs[i] & 31));
  }
  return table;
}

}  // namespace

const std::array<Category, end_of_unicode>& categories() {
  static const auto table = unpacked();
  return *table;
}

void append_utf8(std::string& text, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

bool valid_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t at = 0; at < text.size();) {
    if (at + 8 <= text.size()) {  // most text is mostly ASCII
      std::uint64_t eight = 0;
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const unsigned lead = byte(at);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const std::size_t length = character_bytes(text[at]);
    if (lead < 0xC2 || lead > 0xF4 || text.size() - at < length) return false;
    const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(at + 1) < low || byte(at + 1) > high) return false;
    for (std::size_t i = 2; i < length; ++i) {
      if (!continues(text[at + i])) return false;
    }
    at += length;
  }
  return true;
}

}  // namespace holdfast::text
