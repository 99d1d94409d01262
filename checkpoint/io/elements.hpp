#pragma once
// What the elements of a model's weights in other people's files are as fp32, which is what weights are here.
#include <cstddef>
#include <span>

#include "checkpoint/index/element.hpp"

namespace holdfast::checkpoint {

/// `to.size()` elements at `from`, of any alignment. All fp32, bf16 and fp16 are fp32 exactly; fp64 is
/// rounded to the nearest, ties to even.
void to_fp32(Element element, const std::byte* from, std::span<float> to);
/// The reverse, rounded to the nearest, ties to even; what is too large becomes infinity, and a NaN stays
/// one. What to_fp32() made of bf16 or fp16 becomes what it was, quiet NaNs included. Not for fp64.
void from_fp32(Element element, std::span<const float> from, std::byte* to);

}  // namespace holdfast::checkpoint
