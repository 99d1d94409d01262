#pragma once
// Sums over tokens: see kernels::Kernels::column_sums().
#include <cstdint>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// Floats of scratch that column_sums() needs.
std::int64_t column_sums_scratch(std::int64_t tokens, std::int64_t cols);

/// out[c] = sum of x[t][c] over t; x is fp32 or bf16. Tokens are cut into at most 64 blocks of at least 64;
/// in a block, eight sums of every eighth token are added in order, then the blocks' sums: the order depends
/// on the number of tokens only.
void column_sums(Runtime& runtime, StreamHandle stream, float* out, const tensor::ConstMat& x,
                 float* scratch);

}  // namespace holdfast::cuda
