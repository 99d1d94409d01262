#pragma once
// Conversions of 8-bit floats, bit for bit what Hopper's cvt.rn.satfinite does: to the nearest, ties to even;
// too large values and infinities become the largest finite one; a NaN becomes the one that has all bits but
// the sign set. Without branches, so that loops over them become vectors, and plain enough for device code.
#include <bit>
#include <cstdint>

#include "src/base/dtype.hpp"

namespace holdfast {

/// Largest finite values.
constexpr float e4m3_max = 448, e5m2_max = 57344;
constexpr float fp8_max(DType type) { return type == DType::e4m3 ? e4m3_max : e5m2_max; }

namespace fp8 {

/// `mantissa` bits and an exponent with `bias`; `largest`: bits of the largest finite value.
template <int mantissa, int bias, std::uint32_t largest>
constexpr std::uint8_t from_float(float x) {
  constexpr int dropped = 23 - mantissa;
  constexpr std::uint32_t least_normal = static_cast<std::uint32_t>(128 - bias) << 23;
  // Its unit in the last place is the least subnormal, so the sum is rounded where the subnormals are.
  constexpr std::uint32_t rounder_bits = static_cast<std::uint32_t>(128 - bias - mantissa + 23) << 23;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
  const std::uint32_t nearest = (size + ((1u << (dropped - 1)) - 1) + (size >> dropped & 1)) >> dropped;
  const std::uint32_t normal = nearest - (static_cast<std::uint32_t>(127 - bias) << mantissa);
  const std::uint32_t finite = normal < largest ? normal : largest;
  const float shifted = std::bit_cast<float>(size) + std::bit_cast<float>(rounder_bits);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - rounder_bits;
  const std::uint32_t number = (size < least_normal ? subnormal : finite) | sign;
  return static_cast<std::uint8_t>(size > 0x7f800000 ? 0x7f : number);
}

/// Bits of the fp32 value of a number (not of a NaN or an infinity).
template <int mantissa, int bias>
constexpr std::uint32_t number_bits(std::uint32_t bits) {
  constexpr int dropped = 23 - mantissa;
  constexpr std::uint32_t least_normal = static_cast<std::uint32_t>(128 - bias) << 23;
  const std::uint32_t size = bits & 0x7f;
  const std::uint32_t normal = (size << dropped) + (static_cast<std::uint32_t>(127 - bias) << 23);
  // As a mantissa of the least normal number, which is then taken off again: exact.
  const float subnormal =
      std::bit_cast<float>(least_normal | size << dropped) - std::bit_cast<float>(least_normal);
  return (size >> mantissa == 0 ? std::bit_cast<std::uint32_t>(subnormal) : normal) | (bits & 0x80) << 24;
}

}  // namespace fp8

constexpr E4m3 to_e4m3(float x) { return {fp8::from_float<3, 7, 0x7e>(x)}; }
constexpr E5m2 to_e5m2(float x) { return {fp8::from_float<2, 15, 0x7b>(x)}; }

constexpr float to_float(E4m3 x) {
  const std::uint32_t bits = x.bits;
  return std::bit_cast<float>((bits & 0x7f) == 0x7f ? 0x7fc00000 : fp8::number_bits<3, 7>(bits));
}
constexpr float to_float(E5m2 x) {
  const std::uint32_t bits = x.bits;
  const std::uint32_t beyond = (bits & 3) == 0 ? 0x7f800000 | (bits & 0x80) << 24 : 0x7fc00000;
  return std::bit_cast<float>((bits & 0x7f) >= 0x7c ? beyond : fp8::number_bits<2, 15>(bits));
}

/// x in the 8-bit type T.
template <class T>
constexpr T to_fp8(float x);
template <>
constexpr E4m3 to_fp8<E4m3>(float x) {
  return to_e4m3(x);
}
template <>
constexpr E5m2 to_fp8<E5m2>(float x) {
  return to_e5m2(x);
}

/// Both largest values are 1.75 times a power of two, so all that a scale must know of a tensor is the least
/// p with |x| <= 1.75 * 2^p for all its elements: p + 127, from the fp32 bits of the largest |x|. 0: zeros
/// only (or almost); 255: at the very end of fp32's range; 256: an infinity or a NaN.
constexpr int fp8_size(std::uint32_t amax_bits) {
  if (amax_bits >= 0x7f800000) return 256;
  return static_cast<int>(amax_bits >> 23) + ((amax_bits & 0x7fffff) > 0x600000 ? 1 : 0);
}
/// The largest power of two that keeps a tensor of this fp8_size() (below 256) within the finite values of
/// `type`: at most 2^126, so that 1 / scale is a normal number too.
constexpr float fp8_scale_of_size(int size, DType type) {
  const int power = (type == DType::e4m3 ? 8 : 15) - (size - 127);
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + (power < 126 ? power : 126)) << 23);
}
/// The same from the fp32 bits of the largest |x|. 1 for a tensor of zeros and one with an infinity or a NaN.
constexpr float fp8_scale(std::uint32_t amax_bits, DType type) {
  if (amax_bits == 0 || amax_bits >= 0x7f800000) return 1.0f;
  return fp8_scale_of_size(fp8_size(amax_bits), type);
}
/// 1 / scale of a power of two that fp8_scale() gave, exactly.
constexpr float fp8_inverse(float scale) {
  return std::bit_cast<float>((254u << 23) - std::bit_cast<std::uint32_t>(scale));
}

}  // namespace holdfast
