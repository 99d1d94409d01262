#include "src/cuda/runtime/which_gpu.hpp"

#include <fmt/core.h>

#include "src/base/error.hpp"
#include "src/device/module_interface.hpp"

namespace holdfast::cuda {
namespace {

using device::Unavailable;
constexpr int oldest_major = 8;  ///< bf16 tensor cores

std::string what_there_is(const VisibleGpus& visible) {
  std::string why = visible.failure;
  if (visible.on_node > 0)
    why += fmt::format("{}the driver knows of {} GPU{}", why.empty() ? "" : "; ", visible.on_node,
                       visible.on_node == 1 ? "" : "s");
  return why;
}

}  // namespace

int which_gpu(const VisibleGpus& visible, const device::DeviceOptions& options, bool share) {
  if (visible.cuda_of_driver == 0)
    throw Unavailable(Exit::runtime, "this machine has no NVIDIA driver", "CUDA finds no libcuda.so.1",
                      "Install the driver, or choose the device cpu?");
  const int count = static_cast<int>(visible.gpus.size());
  if (count == 0)
    throw Unavailable(Exit::runtime, "this rank sees no GPU", what_there_is(visible),
                      "Ask SLURM for GPUs (--gres, --gpus-per-node), or look at CUDA_VISIBLE_DEVICES?");
  if (count < options.local_ranks && !share && !visible.one_was_given)
    throw Unavailable(Exit::runtime,
                      fmt::format("there are {} ranks on this node and {} GPU{}", options.local_ranks, count,
                                  count == 1 ? "" : "s"),
                      "each rank needs one",
                      "Start fewer ranks, or let them share with HOLDFAST_SHARE_GPU=1 (for tests)?");
  const int index = options.local_rank % count;
  const auto& gpu = visible.gpus[index];
  if (gpu.major < oldest_major)
    throw Unavailable(Exit::runtime, fmt::format("GPU {} ({}) is too old", index, gpu.name),
                      fmt::format("its compute capability is {}.{}, the backend needs {}.0", gpu.major,
                                  gpu.minor, oldest_major),
                      "Choose the device cpu?");
  return index;
}

}  // namespace holdfast::cuda
