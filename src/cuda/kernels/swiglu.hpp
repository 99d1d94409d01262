#pragma once
// SwiGLU on packed gate|up: see kernels::Kernels::swiglu().
#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// fp32 or bf16. `quantize` may be null.
void swiglu(Runtime& runtime, StreamHandle stream, tensor::Mat out, tensor::ConstMat gate_up,
            const kernels::Quantize* quantize);

/// d_gate_up may be gate_up itself.
void swiglu_backward(Runtime& runtime, StreamHandle stream, tensor::Mat d_gate_up, tensor::ConstMat d_out,
                     tensor::ConstMat gate_up);

}  // namespace holdfast::cuda
