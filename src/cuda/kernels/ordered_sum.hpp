#pragma once
// Sums of terms in canonical order: see kernels::Kernels::add_up().
#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// Terms are fp32 or bf16, on this GPU or mapped from a peer. One launch for each pass
/// (base/ordered_sum.hpp), whatever the order of additions; every term is read once. The bits of the CPU's.
void ordered_sum(Runtime& runtime, StreamHandle stream, const kernels::OrderedSum& sum);

}  // namespace holdfast::cuda
