#pragma once
// Dropout: see kernels::Dropout. The CPU's bits.
#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

void dropout(Runtime& runtime, StreamHandle stream, const kernels::Dropout& call);

}  // namespace holdfast::cuda
