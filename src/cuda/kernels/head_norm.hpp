#pragma once
// Norms of the heads of queries and keys: see kernels::HeadNorm and kernels::HeadNormGradient.
#include <cstdint>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// The largest head: what the registers of a warp hold.
constexpr std::int64_t head_norm_widest = 256;

/// fp32 or bf16; heads of at most head_norm_widest elements, else an Error (usage). The squares of a head are
/// added in an order that depends on its size only.
void head_norm(Runtime& runtime, StreamHandle stream, const kernels::HeadNorm& call);

/// Floats of scratch that head_norm_backward() needs for gradients of the gains.
std::int64_t head_norm_backward_scratch(std::int64_t tokens, std::int64_t head_size);

/// `scratch`: aligned to 16; may be null without gradients of gains. These are added up by warps, each over
/// tokens and heads of its own in order, then as column_sums() adds the warps' sums: the order depends on the
/// numbers of tokens and heads only.
void head_norm_backward(Runtime& runtime, StreamHandle stream, const kernels::HeadNorm& call,
                        const kernels::HeadNormGradient& gradient, float* scratch);

}  // namespace holdfast::cuda
