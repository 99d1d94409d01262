#include "src/corpus/utf8.hpp"

#include <simdjson.h>

#include <string_view>

namespace holdfast::corpus {
namespace {

/// Length of the well-formed character at `at`, or 0; then `bad` is the length of the maximal malformed
/// subpart. The ranges are Table 3-7 of the Unicode Standard.
std::size_t character_at(std::string_view text, std::size_t at, std::size_t& bad) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(at);
  bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    const unsigned next = byte(at + i);
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF)) return 0;
    bad = i + 1;
  }
  return length;
}

}  // namespace

std::uint64_t repair_utf8(std::string& text) {
  if (simdjson::validate_utf8(text)) return 0;
  std::string repaired;
  std::uint64_t count = 0;
  std::size_t clean = 0, bad = 0;  // [clean, at) is well-formed and not yet copied
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t length = character_at(text, at, bad)) {
      at += length;
      continue;
    }
    repaired.append(text, clean, at - clean).append("\xEF\xBF\xBD");
    at = clean = at + bad;
    ++count;
  }
  text = repaired.append(text, clean);
  return count;
}

}  // namespace holdfast::corpus
