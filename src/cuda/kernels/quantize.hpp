#pragma once
// 8-bit copies of matrices and their scales: see kernels::Quantize and kernels::Kernels::scales().
#include <cstdint>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// x is fp32 or bf16; it is read once, whatever is wanted of out, transposed and amax.
void quantize(Runtime& runtime, StreamHandle stream, const tensor::ConstMat& x,
              const kernels::Quantize& wanted);

/// *amax = max(*amax, bits of the largest |x|). Integers, so that no order shows.
void amax(Runtime& runtime, StreamHandle stream, const tensor::ConstMat& x, std::uint32_t* amax);

/// scale[i] = fp8_scale(amax[i], type), inverse[i] = 1 / scale[i], exactly.
void scales(Runtime& runtime, StreamHandle stream, float* scale, float* inverse, const std::uint32_t* amax,
            kernels::DType type, int count);

}  // namespace holdfast::cuda
