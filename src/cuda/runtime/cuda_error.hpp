#pragma once
// CUDA's error codes as errors that people read.
#include <cuda_runtime_api.h>

#include <string>

namespace holdfast::cuda {

/// The GPU or its driver has failed: nothing works any more in this process, and `error` comes back from
/// every later call.
bool is_lost(cudaError_t error);

/// Throws Error (runtime) unless `error` is cudaSuccess. `call`: "cudaMalloc"; `gpu`: see describe_gpu(), or
/// "".
void check(cudaError_t error, const char* call, const std::string& gpu = "");

/// As check(), for where nothing may be thrown: a line in the log, but none for what fails because the GPU is
/// lost.
void check_at_end(cudaError_t error, const char* call) noexcept;

/// "GPU 3 (GPU-8e1c..., 0000:3b:00.0)"
std::string describe_gpu(int index, const std::string& uuid, const std::string& bus);

}  // namespace holdfast::cuda
