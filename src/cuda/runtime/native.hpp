#pragma once
// The handles of runtime.hpp as CUDA's own.
#include <cuda_runtime_api.h>

#include "src/cuda/runtime/runtime.hpp"

namespace holdfast::cuda {

inline cudaStream_t native(StreamHandle stream) { return reinterpret_cast<cudaStream_t>(stream); }
inline cudaEvent_t native(EventHandle event) { return reinterpret_cast<cudaEvent_t>(event); }
inline cudaGraphExec_t native(GraphHandle graph) { return reinterpret_cast<cudaGraphExec_t>(graph); }

}  // namespace holdfast::cuda
