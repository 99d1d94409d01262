#pragma once
// Rotary positions: see kernels::Rope.
#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// qkv and the tables are fp32 or bf16, each for itself. The bits are the CPU's.
void rope(Runtime& runtime, StreamHandle stream, const kernels::Rope& call);

}  // namespace holdfast::cuda
