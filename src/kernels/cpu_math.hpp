#pragma once
// Arithmetic of the CPU kernels whose bits are the same for every vector width: one rounding per operation,
// sums over a fixed number of lanes, an own exp. Elements are float or Bf16 and become float when they are
// read.
#include <bit>
#include <cstdint>
#include <type_traits>

#include "src/tensor/dtype.hpp"

// The same loop compiled for three vector widths, chosen at load time. Nothing is contracted or reassociated,
// so all three give the same bits. Sanitizers do not bear resolvers that run before they are set up.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HOLDFAST_VECTOR_WIDTHS __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define HOLDFAST_VECTOR_WIDTHS
#endif
#define HOLDFAST_INLINE inline __attribute__((always_inline))

namespace holdfast::kernels {

using tensor::Bf16;
using tensor::to_float;

/// x as an element of type T: tensor::to_bf16 in the form that compilers turn into the fewest vector
/// operations.
template <class T>
HOLDFAST_INLINE T rounded(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), upper = bits >> 16;
    const std::uint32_t nearest = (bits + (0x7fff + (upper & 1))) >> 16;
    return {static_cast<std::uint16_t>(x != x ? upper | 0x40 : nearest)};
  }
}

/// f.operator()<float>() or f.operator()<Bf16>().
template <class F>
decltype(auto) with_type(tensor::DType type, const F& f) {
  return type == tensor::DType::fp32 ? f.template operator()<float>() : f.template operator()<Bf16>();
}

constexpr int sum_lanes = 16;  ///< orders additions: part of the numerics identity

/// Element i goes to lane i mod 16; lanes merge as a balanced tree.
HOLDFAST_INLINE float merge_lanes(float* lane) {
  for (int width = sum_lanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

template <class T>
HOLDFAST_INLINE float dot(const T* a, const T* b, std::int64_t n) {
  float lane[sum_lanes] = {};
  std::int64_t i = 0;
  for (; i + sum_lanes <= n; i += sum_lanes)
    for (int l = 0; l < sum_lanes; ++l) lane[l] += to_float(a[i + l]) * to_float(b[i + l]);
  for (int l = 0; i + l < n; ++l) lane[l] += to_float(a[i + l]) * to_float(b[i + l]);
  return merge_lanes(lane);
}

/// The largest element; NaNs are passed over (they come back through the sum of exponentials). n > 0.
HOLDFAST_INLINE float largest(const float* x, std::int64_t n) {
  float lane[sum_lanes];
  for (int l = 0; l < sum_lanes; ++l) lane[l] = x[0];
  std::int64_t i = 0;
  for (; i + sum_lanes <= n; i += sum_lanes)
    for (int l = 0; l < sum_lanes; ++l) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
  for (; i < n; ++i) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
  for (int l = 1; l < sum_lanes; ++l) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
  return lane[0];
}

/// e^x for x in [-87, 88], held there outside; relative error below 2e-7; NaN stays NaN. The polynomial is
/// that of Cephes (Moshier, "Methods and programs for mathematical functions", 1989).
HOLDFAST_INLINE float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the sum's low bits are round(x / ln 2)
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r) * r + r + 1.0f;
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) - 0x4b400000u + 127u) << 23;
  return p * std::bit_cast<float>(exponent);
}

/// x[i] = exp(x[i] - top) in place; returns their sum.
HOLDFAST_INLINE float exponentials(float* x, std::int64_t n, float top) {
  float lane[sum_lanes] = {};
  std::int64_t i = 0;
  for (; i + sum_lanes <= n; i += sum_lanes)
    for (int l = 0; l < sum_lanes; ++l) {
      x[i + l] = exponential(x[i + l] - top);
      lane[l] += x[i + l];
    }
  for (int l = 0; i + l < n; ++l) {
    x[i + l] = exponential(x[i + l] - top);
    lane[l] += x[i + l];
  }
  return merge_lanes(lane);
}

/// The same sum, and x stays as it is.
HOLDFAST_INLINE float sum_of_exponentials(const float* x, std::int64_t n, float top) {
  float lane[sum_lanes] = {};
  std::int64_t i = 0;
  for (; i + sum_lanes <= n; i += sum_lanes)
    for (int l = 0; l < sum_lanes; ++l) lane[l] += exponential(x[i + l] - top);
  for (int l = 0; i + l < n; ++l) lane[l] += exponential(x[i + l] - top);
  return merge_lanes(lane);
}

}  // namespace holdfast::kernels
