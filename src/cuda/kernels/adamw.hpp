#pragma once
// AdamW: see kernels::AdamW.
#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// The bits of the CPU's: every line of kernels::AdamW is rounded as written. One pass over memory.
void adamw(Runtime& runtime, StreamHandle stream, const kernels::AdamW& call,
           const kernels::StepScalars& scalars);

}  // namespace holdfast::cuda
