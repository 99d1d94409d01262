#pragma once
// Sums of terms in canonical order: see kernels::Kernels::reduce().
#include <cstdint>
#include <span>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// sum[i] (+)= terms[0][i] + terms[1][i] + ... from left to right in fp32; `first`: terms[0] is copied.
/// Terms are fp32 or bf16, on this GPU or mapped from a peer. The bits of the CPU's.
void ordered_reduce(Runtime& runtime, StreamHandle stream, float* sum, std::span<const void* const> terms,
                    kernels::DType type, std::int64_t count, bool first);

}  // namespace holdfast::cuda
