#pragma once
// The types that a model's weights can have in other people's files.
#include <cstdint>
#include <optional>
#include <string_view>

namespace holdfast::checkpoint {

enum class Element : std::uint8_t { f32, bf16, f16, f64 };

constexpr std::int64_t bytes_of(Element element) {
  return element == Element::f64 ? 8 : element == Element::f32 ? 4 : 2;
}
/// As safetensors spells it: "F32", "BF16", "F16", "F64".
std::string_view name_of(Element element);
std::optional<Element> element_called(std::string_view safetensors_dtype);

}  // namespace holdfast::checkpoint
