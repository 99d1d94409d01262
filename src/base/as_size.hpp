#pragma once
#include <cstddef>

namespace holdfast {

/// A count, a length or an index that is known not to be negative, where a comparison, a product or a
/// template argument needs it as std::size_t.
template <class Number>
constexpr std::size_t as_size(Number number) {
  return static_cast<std::size_t>(number);
}

}  // namespace holdfast
