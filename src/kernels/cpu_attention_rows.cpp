#include "src/kernels/cpu_attention_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/kernels/cpu_attention_power.hpp"
#include "src/kernels/cpu_math.hpp"

// As HOLDFAST_VECTOR_WIDTHS, but with fused multiplication and addition, which x86-64-v3 has and "avx2" has
// not. Without it std::fma is a function: the same bits, slowly.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HOLDFAST_FMA_WIDTHS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HOLDFAST_FMA_WIDTHS
#endif

namespace holdfast::kernels {

namespace {

HOLDFAST_INLINE float power_of_two(float x) {
  const float shifted = x + power::shift;
  const float r = x - (shifted - power::shift);
  float p = power::c4;
  p = std::fma(p, r, power::c3);
  p = std::fma(p, r, power::c2);
  p = std::fma(p, r, power::c1);
  p = std::fma(p, r, 1.0f);
  p = p * std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);
  return x < power::least ? 0.0f : p;
}

/// For numbers that are not NaN with low bits only: those here come from bf16 or from arithmetic.
HOLDFAST_INLINE Bf16 nearest(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
/// The same, and a subnormal number is a zero of its sign.
HOLDFAST_INLINE Bf16 operand(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return nearest(std::bit_cast<float>((bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits));
}

/// Integers in the order of the floats (and its own inverse): integer maxima vectorise without fast-math.
HOLDFAST_INLINE std::int32_t ordered(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  return bits ^ (bits >> 31 & 0x7fffffff);
}

HOLDFAST_VECTOR_WIDTHS void plain_largest(RowLanes& lanes, const float* scores, std::int64_t count) {
  constexpr std::int32_t infinity = 0x7f800000, least = std::numeric_limits<std::int32_t>::min();
  std::int32_t lane[row_group];
  for (int l = 0; l < row_group; ++l) lane[l] = ordered(lanes.lane[l]);
  for (std::int64_t j = 0; j < count; j += row_group)
    for (int l = 0; l < row_group; ++l) {
      const std::int32_t x = ordered(scores[j + l]), nan = -(x > infinity);  // by bits: a branch less
      const std::int32_t number = (x & ~nan) | (least & nan);
      lane[l] = number > lane[l] ? number : lane[l];
    }
  for (int l = 0; l < row_group; ++l)
    lanes.lane[l] = std::bit_cast<float>(ordered(std::bit_cast<float>(lane[l])));
}

HOLDFAST_FMA_WIDTHS void plain_powers(Bf16* __restrict p, RowLanes& __restrict sums,
                                      const float* __restrict scores, std::int64_t count, float scale,
                                      float top) {
  float lane[row_group];
  for (int l = 0; l < row_group; ++l) lane[l] = sums.lane[l];
  for (std::int64_t j = 0; j < count; j += row_group) {
    float e[row_group];
    for (int l = 0; l < row_group; ++l) {
      e[l] = power_of_two(std::fma(scores[j + l], scale, -top));
      lane[l] += e[l];
    }
    for (int l = 0; l < row_group; ++l) p[j + l] = nearest(e[l]);  // none is subnormal
  }
  for (int l = 0; l < row_group; ++l) sums.lane[l] = lane[l];
}

HOLDFAST_FMA_WIDTHS void plain_power_gradients(Bf16* __restrict p, Bf16* __restrict ds,
                                               const float* __restrict scores, const float* __restrict dp,
                                               std::int64_t count, float scale, float top, float mean) {
  for (std::int64_t j = 0; j < count; ++j) {
    const float e = power_of_two(std::fma(scores[j], scale, -top));
    p[j] = nearest(e);
    ds[j] = operand(e * (dp[j] - mean));
  }
}

}  // namespace

void fill(RowLanes& lanes, float x) { std::fill_n(lanes.lane, row_group, x); }
float largest(const RowLanes& lanes) { return *std::max_element(lanes.lane, lanes.lane + row_group); }
float sum(RowLanes lanes) { return merge_lanes(lanes.lane); }

const RowMath& plain_row_math() {
  static constexpr RowMath plain{plain_largest, plain_powers, plain_power_gradients};
  return plain;
}

const RowMath& row_math() {
  static const RowMath& best = avx512_row_math() != nullptr ? *avx512_row_math() : plain_row_math();
  return best;
}

HOLDFAST_VECTOR_WIDTHS void scaled(Bf16* __restrict to, const float* __restrict from, std::int64_t count,
                                   float factor) {
  for (std::int64_t j = 0; j < count; ++j) to[j] = nearest(from[j] * factor);
}

HOLDFAST_VECTOR_WIDTHS float row_product(const Bf16* a, const Bf16* b, std::int64_t count) {
  return dot(a, b, count);
}

}  // namespace holdfast::kernels
