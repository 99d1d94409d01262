#pragma once
// Sums of leaves in canonical order: see kernels::Kernels::fold().
#include <cstdint>
#include <span>

#include "src/cuda/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// sum[i] (+)= leaves[0][i] + leaves[1][i] + ... from left to right in fp32; `first`: leaves[0] is copied.
/// Leaves are fp32 or bf16, on this GPU or mapped from a peer. The bits of the CPU's.
void fold(Runtime& runtime, StreamHandle stream, float* sum, std::span<const void* const> leaves,
          kernels::DType type, std::int64_t count, bool first);

}  // namespace holdfast::cuda
