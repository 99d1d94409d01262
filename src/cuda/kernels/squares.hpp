#pragma once
// Exact sums of squares: see kernels::Kernels::sum_squares().
#include <cstdint>

#include "src/cuda/runtime/runtime.hpp"
#include "src/tensor/exact_sum.hpp"

namespace holdfast::cuda {

/// Several for every multiprocessor of the largest GPUs.
constexpr int sum_squares_blocks = 1056;

/// Bytes of scratch that sum_squares() needs, aligned to 16.
std::int64_t sum_squares_scratch();

/// *sum += x[i]^2 for every i in [0, count): the same words as tensor::ExactSum::add_square() gives for each.
/// The scratch is free again behind it. `max_blocks`, at most sum_squares_blocks, cuts the work, which does
/// not show in the sum.
void sum_squares(Runtime& runtime, StreamHandle stream, const float* x, std::int64_t count,
                 tensor::ExactSum* sum, std::byte* scratch, int max_blocks = sum_squares_blocks);

}  // namespace holdfast::cuda
