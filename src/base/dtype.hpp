#pragma once
// Element types. Arithmetic is always done in fp32; the narrow ones are ways to store. The 8-bit ones are
// operands of products only (see src/base/fp8.hpp).
#include <bit>
#include <cstdint>
#include <string_view>

namespace holdfast {

enum class DType : std::uint8_t { fp32, bf16, e4m3, e5m2 };

constexpr bool is_fp8(DType type) { return type == DType::e4m3 || type == DType::e5m2; }
constexpr std::int64_t bytes_of(DType type) { return type == DType::fp32 ? 4 : type == DType::bf16 ? 2 : 1; }
constexpr std::string_view name_of(DType type) {
  constexpr std::string_view names[] = {"fp32", "bf16", "e4m3", "e5m2"};
  return names[static_cast<int>(type)];
}

/// The upper half of an fp32.
struct Bf16 {
  std::uint16_t bits = 0;
  bool operator==(const Bf16&) const = default;
};

constexpr float to_float(Bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
constexpr float to_float(float x) { return x; }

/// To the nearest, ties to even; what is too large becomes infinity, a NaN stays a (quiet) NaN.
constexpr Bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return {static_cast<std::uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

/// 8-bit floats of "FP8 formats for deep learning" (Micikevicius et al., 2022): 4 exponent bits, no infinity,
/// up to 448; 5 exponent bits, up to 57344.
struct E4m3 {
  std::uint8_t bits = 0;
  bool operator==(const E4m3&) const = default;
};
struct E5m2 {
  std::uint8_t bits = 0;
  bool operator==(const E5m2&) const = default;
};

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::fp32;
}
template <>
constexpr DType dtype_of<Bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<E4m3>() {
  return DType::e4m3;
}
template <>
constexpr DType dtype_of<E5m2>() {
  return DType::e5m2;
}

}  // namespace holdfast
