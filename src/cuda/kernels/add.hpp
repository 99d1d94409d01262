#pragma once
// Sums of two matrices: see kernels::Kernels::add().
#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// fp32 or bf16, all of one type. The bits are the CPU's.
void add(Runtime& runtime, StreamHandle stream, const tensor::Mat& out, const tensor::ConstMat& a,
         const tensor::ConstMat& b);

}  // namespace holdfast::cuda
