#pragma once
#include <algorithm>
#include <string_view>

namespace holdfast::fuzz {

/// Calls `take` with every line of `bytes`, without its end, until it returns false.
template <class Take>
void each_line(std::string_view bytes, Take take) {
  for (std::size_t begin = 0; begin <= bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', begin), bytes.size());
    if (!take(bytes.substr(begin, end - begin))) return;
    begin = end + 1;
  }
}

}  // namespace holdfast::fuzz
