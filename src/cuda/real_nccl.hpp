#pragma once
#include <memory>

#include "src/cuda/nccl.hpp"

namespace holdfast::cuda {

/// The library itself, for the calling thread's GPU. Null in a build without it.
std::unique_ptr<Nccl> make_real_nccl();

}  // namespace holdfast::cuda
