#pragma once
// Element types. Arithmetic is always done in fp32; bf16 is a way to store.
#include <bit>
#include <cstdint>
#include <string_view>

namespace holdfast {

enum class DType : std::uint8_t { fp32, bf16 };

constexpr std::int64_t bytes_of(DType type) { return type == DType::fp32 ? 4 : 2; }
constexpr std::string_view name_of(DType type) { return type == DType::fp32 ? "fp32" : "bf16"; }

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

}  // namespace holdfast
