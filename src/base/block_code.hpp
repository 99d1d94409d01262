#pragma once
// Weights in few bits: 64 elements share a scale, the largest magnitude among them, and each is the code of
// its quotient by it. int8: round(127 x), as two's complement. nf4: the nearest of 16 quantiles of the normal
// distribution (Dettmers et al., "QLoRA", 2023, appendix E), two to a byte, the first in the lower half.
#include <array>
#include <cstdint>
#include <span>

namespace holdfast {

enum class BlockCode : std::uint8_t { int8, nf4 };

constexpr std::int64_t code_block = 64;  ///< elements

inline constexpr std::array<float, 16> nf4_values = {
    -1.0f,       -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
    0.07958030f, 0.16093020f,  0.24611230f,  0.33791524f,  0.44070983f,  0.56261700f,  0.72295684f,  1.0f};

/// Of the codes of `count` elements, a multiple of code_block; of their scales, fp32.
constexpr std::int64_t code_bytes(BlockCode code, std::int64_t count) {
  return code == BlockCode::int8 ? count : count / 2;
}
constexpr std::int64_t scale_bytes(std::int64_t count) { return count / code_block * 4; }

/// Codes and scales of `values`, whole blocks; what is not finite is not allowed for.
void encode_blocks(BlockCode code, std::span<const float> values, std::span<std::uint8_t> codes,
                   std::span<float> scales);
/// The value of one code under the scale of its block, rounded once per operation.
constexpr float decode(BlockCode code, std::uint8_t byte, bool upper, float scale) {
  if (code == BlockCode::int8)
    return static_cast<float>(static_cast<std::int8_t>(byte)) * (scale * (1.0f / 127.0f));
  // A copy: a kernel on a GPU cannot read a variable of the host, and nvcc compiles such an access to a trap
  // without a warning.
  constexpr std::array<float, 16> values = nf4_values;
  return values[upper ? byte >> 4 : byte & 15] * scale;
}

}  // namespace holdfast
