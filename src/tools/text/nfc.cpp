#include "src/tools/text/nfc.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "src/base/error.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/text/unicode.hpp"

namespace holdfast::text {
namespace {

struct Range {
  std::uint32_t first, last;
};

/// What Unicode 10 and later define that is reordered or composed.
constexpr Range late[] = {
    {0x7fd, 0x7fd},     {0x897, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xcf3, 0xcf3},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0xece, 0xece},     {0x1715, 0x1715},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x105c0, 0x105f3}, {0x10d24, 0x10d27},
    {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10efc, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85},
    {0x11070, 0x11070}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x11380, 0x113e2}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11930, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0},
    {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
    {0x11d97, 0x11d97}, {0x11f00, 0x11f01}, {0x11f03, 0x11f03}, {0x11f34, 0x11f3a}, {0x11f3e, 0x11f42},
    {0x11f5a, 0x11f5a}, {0x13440, 0x13440}, {0x13447, 0x13455}, {0x16100, 0x16139}, {0x16d40, 0x16d79},
    {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef}};

bool is_late(std::uint32_t c) {
  const auto* found =
      std::lower_bound(std::begin(late), std::end(late), c,
                       [](const Range& range, std::uint32_t value) { return range.last < value; });
  return found != std::end(late) && found->first <= c;
}

constexpr std::uint32_t plain_below = 0x300;  // no mark, and nothing that form C changes

/// May belong to the character before it: a mark, or a vowel or final consonant of a Hangul syllable.
bool attaches(std::uint32_t c) {
  if (c < plain_below) return false;
  return (bit(categories()[c]) & mark_categories) != 0 || (c >= 0x1160 && c <= 0x11FF);
}

bool decomposes(std::uint32_t c) {
  if (c < plain_below) return false;
  const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  return property->decomp_seqindex != UINT16_MAX && property->decomp_type == 0;
}

/// A character with what attaches to it, in form C. Ordering the marks is done here: the library's own way
/// takes quadratic time.
void compose(std::string_view segment, std::vector<utf8proc_int32_t>& scratch, std::string& out) {
  scratch.clear();
  for (std::size_t at = 0; at < segment.size(); at += utf8::character_bytes(segment[at])) {
    std::array<utf8proc_int32_t, 8> parts = {};
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(utf8::code_point(segment.data() + at)),
                                parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &boundary);
    expects(count > 0 && count <= std::ssize(parts), "a character has a decomposition of a few characters");
    scratch.insert(scratch.end(), parts.begin(), parts.begin() + count);
  }
  const auto order = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto first = scratch.begin(); first != scratch.end();) {
    auto end = first;
    while (end != scratch.end() && order(*end) != 0) ++end;
    std::stable_sort(first, end, [&](auto a, auto b) { return order(a) < order(b); });
    first = end == scratch.end() ? end : end + 1;
  }
  const auto size =
      utf8proc_normalize_utf32(scratch.data(), std::ssize(scratch),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  expects(size >= 0, "code points can be composed");
  for (auto i = 0; i < size; ++i) utf8::append(out, static_cast<std::uint32_t>(scratch[i]));
}

}  // namespace

std::size_t Normalized::original(std::size_t at) const {
  const auto after =
      std::upper_bound(rewritten.begin(), rewritten.end(), at,
                       [](std::size_t byte, const Rewritten& r) { return byte < r.new_first; });
  if (after == rewritten.begin()) return at;
  const Rewritten& last = *std::prev(after);
  return at < last.new_end ? last.first : at - last.new_end + last.end;
}

std::optional<Normalized> nfc(std::string_view text) {
  Normalized result;
  std::vector<utf8proc_int32_t> scratch;
  std::string composed;
  std::size_t copied = 0;  // [0, copied) of `text` is in the result
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t first = utf8::code_point(text.data() + at);
    std::size_t end = at + utf8::character_bytes(text[at]);
    bool many = false;
    if (!is_late(first)) {
      while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0xCC) {  // U+0300 and above
        const std::uint32_t next = utf8::code_point(text.data() + end);
        if (!attaches(next) || is_late(next)) break;
        end += utf8::character_bytes(text[end]);
        many = true;
      }
      if (many || decomposes(first)) {
        const std::string_view segment = text.substr(at, end - at);
        composed.clear();
        compose(segment, scratch, composed);
        if (composed != segment) {
          result.text.append(text, copied, at - copied);
          result.rewritten.push_back({at, end, result.text.size(), result.text.size() + composed.size()});
          result.text += composed;
          copied = end;
        }
      }
    }
    at = end;
  }
  if (copied == 0) return std::nullopt;
  result.text.append(text, copied);
  return result;
}

}  // namespace holdfast::text
