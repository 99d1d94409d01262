#pragma once
// A text that can be learned: each token mostly follows from the one before it.
#include <cstdint>
#include <vector>

#include "src/base/digest.hpp"

namespace holdfast {

inline std::vector<std::int32_t> learnable_tokens(int vocabulary, int count) {
  std::vector<std::int32_t> tokens;
  for (int i = 0, last = 0; i < count; ++i) {
    const std::uint64_t h = mix64(static_cast<std::uint64_t>(i) + 1);
    last = h % 4 == 0 ? static_cast<int>(h / 4 % static_cast<std::uint64_t>(vocabulary))
                      : (last * 5 + 3) % vocabulary;
    tokens.push_back(last);
  }
  return tokens;
}

}  // namespace holdfast
