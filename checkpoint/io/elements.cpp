#include "checkpoint/io/elements.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/base/dtype.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint {
namespace {

/// IEEE half precision: 5 bits of exponent with bias 15, 10 of mantissa. Every value is an fp32 too.
float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t float_to_half(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const auto half = [&](std::uint32_t low) { return static_cast<std::uint16_t>(sign | low); };
  if (magnitude > 0x7f800000) return half(0x7e00 | (magnitude >> 13 & 0x3ff));  // a NaN, quiet
  if (magnitude >= 0x477ff000) return half(0x7c00);                             // 65520 and above: infinity
  if (magnitude >= 0x38800000) {                                                // 2^-14 and above: normal
    const std::uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return half((rounded >> 13) - (112 << 10));
  }
  // Subnormal: adding 1/2 puts the last bit of the result, 2^-24, at the last bit of the sum's mantissa, and
  // the processor rounds to the nearest, ties to even.
  const float sum = std::bit_cast<float>(magnitude) + 0.5f;
  return half(std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0.5f));
}

template <class Bits, class Out, class Convert>
void convert(const std::byte* from, Out* to, std::size_t count, Convert one) {
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
    to[i] = one(bits);
  }
}

template <class Convert>
void narrow(std::span<const float> from, std::byte* to, Convert one) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint16_t bits = one(from[i]);
    std::memcpy(to + 2 * i, &bits, 2);
  }
}

}  // namespace

void to_fp32(Element element, const std::byte* from, std::span<float> to) {
  switch (element) {
    case Element::f32:
      std::copy_n(from, to.size_bytes(), std::as_writable_bytes(to).data());
      return;
    case Element::bf16:
      return convert<std::uint16_t>(from, to.data(), to.size(),
                                    [](std::uint16_t bits) { return to_float(Bf16{bits}); });
    case Element::f16:
      return convert<std::uint16_t>(from, to.data(), to.size(), half_to_float);
    case Element::f64:
      return convert<double>(from, to.data(), to.size(), [](double x) { return static_cast<float>(x); });
  }
}

void from_fp32(Element element, std::span<const float> from, std::byte* to) {
  switch (element) {
    case Element::f32:
      std::ranges::copy(std::as_bytes(from), to);
      return;
    case Element::bf16:
      return narrow(from, to, [](float x) { return to_bf16(x).bits; });
    case Element::f16:
      return narrow(from, to, float_to_half);
    case Element::f64:
      break;
  }
  expects(false, "weights are never written as fp64");
}

}  // namespace holdfast::checkpoint
