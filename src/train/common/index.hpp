#pragma once
#include <cstddef>

namespace holdfast::train {

/// A rank, a piece or an offer as the index of what is known of it.
constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }

}  // namespace holdfast::train
