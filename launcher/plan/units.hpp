#pragma once
// Sizes, and numbers for people.
#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "src/base/as_size.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

inline std::int64_t bytes_of(config::Precision type) { return type == config::Precision::bf16 ? 2 : 4; }

/// "1,262,720"
inline std::string grouped_text(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(as_size(at), ",");
  return digits;
}

/// "1 node", "2 nodes"; "2 batches" with the ending "es"
inline std::string count_text(std::int64_t n, const char* noun, const char* ending = "s") {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : ending);
}

}  // namespace holdfast::launcher
