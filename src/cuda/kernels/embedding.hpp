#pragma once
// Rows of a table, and the sums of their gradients: see kernels::Kernels::embed() and embed_backward().
#include <cstdint>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// Tokens lie below the table's rows; that is not looked at.
void embed(Runtime& runtime, StreamHandle stream, tensor::Mat out, tensor::ConstMat table,
           const std::int32_t* tokens);

/// Words of scratch that embed_backward() needs.
std::int64_t embed_backward_scratch(std::int64_t tokens);

/// The bits are the CPU's: every row of the table has its additions in the order of t. `scratch` is aligned
/// to 4.
void embed_backward(Runtime& runtime, StreamHandle stream, tensor::Mat d_table, tensor::ConstMat d_out,
                    const std::int32_t* tokens, kernels::Write write, std::int32_t* scratch);

}  // namespace holdfast::cuda
