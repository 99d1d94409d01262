#pragma once
// Weights in few bits: see kernels::Kernels::decode_blocks(). The CPU's bits.
#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

void decode_blocks(Runtime& runtime, StreamHandle stream, void* out, kernels::DType to, BlockCode code,
                   const std::byte* codes, const float* scales, std::int64_t count);

}  // namespace holdfast::cuda
