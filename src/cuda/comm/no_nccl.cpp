// A build without NCCL: GPUs of one node only.
#include "src/cuda/comm/real_nccl.hpp"

namespace holdfast::cuda {

std::unique_ptr<Nccl> make_real_nccl(const std::string&) { return nullptr; }

}  // namespace holdfast::cuda
