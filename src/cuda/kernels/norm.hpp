#pragma once
// RMS norm with its residual: see kernels::Norm and kernels::NormGradient.
#include <cstdint>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// The widest row of activations of this type: what the registers of one block hold. 8192 in fp32, 16384 in
/// bf16.
std::int64_t norm_widest(tensor::DType type);

/// fp32 or bf16; 1 <= d <= norm_widest(), else an Error (usage). The squares of a row are added in an order
/// that depends on d and the type only.
void norm(Runtime& runtime, StreamHandle stream, const kernels::Norm& call);

/// Floats of scratch that norm_backward() needs for a gradient of the gain.
std::int64_t norm_backward_scratch(std::int64_t tokens, std::int64_t d);

/// `scratch`: aligned to 16; may be null without d_gain. d_gain: block b adds its tokens b, b + blocks, ...
/// in this order, then the blocks' sums are added in a fixed order; `blocks` depends on d, the type and the
/// number of tokens only.
void norm_backward(Runtime& runtime, StreamHandle stream, const kernels::NormGradient& call, float* scratch);

}  // namespace holdfast::cuda
