#pragma once
// The Runtime of a real GPU.
#include <memory>
#include <string>

#include "src/cuda/runtime/runtime.hpp"

namespace holdfast::cuda {

/// What can be said of GPU `index` without making a context on it; the driver's version is not filled in.
GpuTraits cuda_facts(int index);

/// Chooses GPU `index` (of those that CUDA shows this process) and makes its context. `driver`: the driver's
/// version, for GpuTraits. Throws Error (runtime), also when the GPU does not do what the backend builds on.
std::unique_ptr<Runtime> make_cuda_runtime(int index, std::string driver);

}  // namespace holdfast::cuda
