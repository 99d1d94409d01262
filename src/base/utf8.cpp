#include "src/base/utf8.hpp"

#include <cstring>

namespace holdfast::utf8 {
namespace {

/// Where something malformed begins, from `at` on; the text's size when nothing does.
std::size_t first_malformed(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::uint64_t eight = 0;
    if (at + 8 <= text.size()) {  // most text is mostly ASCII
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const Sequence next = first_sequence(text.substr(at));
    if (!next.whole()) break;
    at += next.bytes;
  }
  return at;
}

}  // namespace

void append(std::string& text, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
}

Sequence first_sequence(std::string_view text) {
  const unsigned lead = static_cast<unsigned char>(text[0]);
  Sequence first;
  if (lead < 0x80) return {1, 1};
  if (lead < 0xC2 || lead > 0xF4) return first;
  first.wanted = character_bytes(text[0]);
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (; first.bytes < first.wanted && first.bytes < text.size(); ++first.bytes) {
    const unsigned next = static_cast<unsigned char>(text[first.bytes]);
    if (first.bytes == 1 ? next < low || next > high : !continues(text[first.bytes])) break;
  }
  return first;
}

bool valid(std::string_view text) { return first_malformed(text, 0) == text.size(); }

std::uint64_t repair(std::string& text) {
  std::size_t bad = first_malformed(text, 0);
  if (bad == text.size()) return 0;
  std::string repaired;
  std::uint64_t count = 0;
  std::size_t clean = 0;  // [clean, bad) is well-formed
  for (; bad < text.size(); bad = first_malformed(text, clean), ++count) {
    repaired.append(text, clean, bad - clean).append(replacement);
    clean = bad + first_sequence(std::string_view(text).substr(bad)).bytes;
  }
  text = repaired.append(text, clean);
  return count;
}

std::string take_settled(std::string& text) {
  // Only the last character may be unfinished: it begins within the last three bytes.
  std::size_t end = text.size();
  for (std::size_t at = end; at > 0 && text.size() - at < 3;) {
    const Sequence last = first_sequence(std::string_view(text).substr(--at));
    if (last.bytes < last.wanted && at + last.bytes == text.size()) end = at;
  }
  std::string out = text.substr(0, end);
  text.erase(0, end);
  repair(out);
  return out;
}

}  // namespace holdfast::utf8
