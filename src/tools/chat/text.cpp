#include "src/tools/chat/text.hpp"

#include <algorithm>

namespace holdfast::chat {

Text own_text(std::string bytes) {
  Text text{std::move(bytes), {}};
  if (!text.bytes.empty()) text.own.emplace_back(0, text.bytes.size());
  return text;
}

void append(Text& to, const Text& from, std::size_t first, std::size_t end) {
  if (first == end) return;  // an empty range is none
  const std::size_t at = to.bytes.size();
  to.bytes.append(from.bytes, first, end - first);
  auto range = std::lower_bound(from.own.begin(), from.own.end(), first,
                                [](const Range& r, std::size_t place) { return r.second <= place; });
  for (; range != from.own.end() && range->first < end; ++range) {
    const std::size_t begins = at + std::max(range->first, first) - first;
    const std::size_t ends = at + std::min(range->second, end) - first;
    if (!to.own.empty() && to.own.back().second == begins) {
      to.own.back().second = ends;
    } else {
      to.own.emplace_back(begins, ends);
    }
  }
}

void append(Text& to, const Text& from) { append(to, from, 0, from.bytes.size()); }

void append(Text& to, std::string_view bytes) { to.bytes += bytes; }

Text part(const Text& of, std::size_t first, std::size_t end) {
  Text text;
  append(text, of, first, end);
  return text;
}

}  // namespace holdfast::chat
