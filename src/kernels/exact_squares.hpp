#pragma once
// Sums of squares at the speed of memory.
#include <cstdint>

#include "src/tensor/exact_sum.hpp"

namespace holdfast::kernels {

/// The same as sum->add_square(x[i]) for every i in [0, count).
void add_squares(tensor::ExactSum* sum, const float* x, std::int64_t count);

}  // namespace holdfast::kernels
