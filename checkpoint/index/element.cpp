#include "checkpoint/index/element.hpp"

#include <array>

#include "src/base/as_size.hpp"

namespace holdfast::checkpoint {
namespace {

constexpr std::array<std::string_view, 4> dtype_names = {"F32", "BF16", "F16", "F64"};

}  // namespace

std::string_view name_of(Element element) { return dtype_names[as_size(element)]; }

std::optional<Element> element_called(std::string_view dtype) {
  for (std::size_t i = 0; i < dtype_names.size(); ++i)
    if (dtype_names[i] == dtype) return static_cast<Element>(i);
  return {};
}

}  // namespace holdfast::checkpoint
