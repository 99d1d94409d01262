#pragma once
// The state digest of elements on the GPU: see kernels::Kernels::digest(). The host's sums.
#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

void digest(Runtime& runtime, StreamHandle stream, const void* x, kernels::DType type, std::int64_t first,
            std::int64_t count, kernels::DigestSums* sums);

}  // namespace holdfast::cuda
