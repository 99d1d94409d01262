#include "src/base/block_code.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast {
namespace {

/// The nearest value, the lower one of two that are equally near.
std::uint8_t nearest_nf4(float x) {
  std::uint8_t best = 0;
  for (std::uint8_t i = 1; i < nf4_values.size(); ++i)
    if (std::abs(nf4_values[i] - x) < std::abs(nf4_values[best] - x)) best = i;
  return best;
}

}  // namespace

void encode_blocks(BlockCode code, std::span<const float> values, std::span<std::uint8_t> codes,
                   std::span<float> scales) {
  const auto block = as_size(code_block);
  expects(values.size() % block == 0 && scales.size() == values.size() / block &&
              codes.size() == as_size(code_bytes(code, std::ssize(values))),
          "whole blocks, and room for what they become");
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const auto x = values.subspan(b * block, block);
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::abs(v));
    scales[b] = largest;
    const float inverse = largest > 0 ? 1.0f / largest : 0.0f;
    for (std::size_t i = 0; i < block; ++i) {
      const float quotient = std::clamp(x[i] * inverse, -1.0f, 1.0f);
      if (code == BlockCode::int8) {
        codes[b * block + i] =
            static_cast<std::uint8_t>(static_cast<std::int8_t>(std::nearbyint(127 * quotient)));
        continue;
      }
      std::uint8_t& byte = codes[(b * block + i) / 2];
      const std::uint8_t nibble = nearest_nf4(quotient);
      byte = static_cast<std::uint8_t>(i % 2 == 0 ? nibble : byte | nibble << 4);
    }
  }
}

}  // namespace holdfast
