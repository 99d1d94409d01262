#pragma once
// What the elements of a model's weights can be in other people's files, and what they are as fp32, which is
// what weights are here.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace holdfast::checkpoint {

enum class Element : std::uint8_t { f32, bf16, f16, f64 };

constexpr std::int64_t bytes_of(Element element) {
  return element == Element::f64 ? 8 : element == Element::f32 ? 4 : 2;
}
/// As safetensors spells it: "F32", "BF16", "F16", "F64".
std::string_view name_of(Element element);
std::optional<Element> element_called(std::string_view safetensors_dtype);

/// `to.size()` elements at `from`, of any alignment. All fp32, bf16 and fp16 are fp32 exactly; fp64 is
/// rounded to the nearest, ties to even.
void to_fp32(Element element, const std::byte* from, std::span<float> to);
/// The reverse, rounded to the nearest, ties to even; what is too large becomes infinity, and a NaN stays
/// one. What to_fp32() made of bf16 or fp16 becomes what it was, quiet NaNs included. Not for fp64.
void from_fp32(Element element, std::span<const float> from, std::byte* to);

}  // namespace holdfast::checkpoint
