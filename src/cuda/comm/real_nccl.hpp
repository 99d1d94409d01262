#pragma once
#include <memory>
#include <string>

#include "src/cuda/comm/nccl.hpp"

namespace holdfast::cuda {

/// The library itself, for the calling thread's GPU; null in a build without it. It is opened by the first
/// call that needs it: ranks that share a node do without it. `library`: its file, for tests; "":
/// libnccl.so.2, wherever the loader finds one, else the one that this was built with.
std::unique_ptr<Nccl> make_real_nccl(const std::string& library = "");

}  // namespace holdfast::cuda
