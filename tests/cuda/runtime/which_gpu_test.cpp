#include "src/cuda/runtime/which_gpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/device/module_interface.hpp"

namespace holdfast::cuda {
namespace {

using device::DeviceOptions;

/// A node with `count` H100s, all of them visible.
VisibleGpus node(int count) {
  VisibleGpus visible{.cuda_of_driver = 13000, .driver = "580.65.06", .on_node = count};
  for (int i = 0; i < count; ++i) visible.gpus.push_back({"NVIDIA H100", "0000:1b:00.0", 9, 0});
  return visible;
}

std::string refusal(const VisibleGpus& visible, const DeviceOptions& options = {}, bool share = false) {
  try {
    which_gpu(visible, options, share);
  } catch (const device::Unavailable& error) {
    EXPECT_EQ(error.exit(), Exit::runtime);
    return error.what();
  }
  return "";
}

TEST(WhichGpu, RanksTakeTheGpusInOrder) {
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(which_gpu(node(8), {.local_rank = rank, .local_ranks = 8}, false), rank);
    EXPECT_EQ(which_gpu(node(9), {.local_rank = rank, .local_ranks = 8}, true), rank);
  }
}

TEST(WhichGpu, ARankThatWasGivenOneTakesIt) {
  auto given = node(1);
  given.on_node = 8;
  given.one_was_given = true;
  EXPECT_EQ(which_gpu(given, {.local_rank = 5, .local_ranks = 8}, false), 0);
}

TEST(WhichGpu, SharingIsAskedFor) {
  EXPECT_EQ(refusal(node(2), {.local_rank = 1, .local_ranks = 4}),
            "there are 4 ranks on this node and 2 GPUs (each rank needs one). Start fewer ranks, or let them "
            "share with HOLDFAST_SHARE_GPU=1 (for tests)?");
  // The same on every rank, also on those that would have one.
  EXPECT_EQ(refusal(node(2), {.local_rank = 1, .local_ranks = 4}),
            refusal(node(2), {.local_rank = 3, .local_ranks = 4}));
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(which_gpu(node(2), {.local_rank = rank, .local_ranks = 4}, true), rank % 2);
}

TEST(WhichGpu, AMissingDriverIsSaid) {
  const VisibleGpus no_gpus{.failure = "cudaErrorInsufficientDriver: too old"};
  EXPECT_EQ(refusal(no_gpus),
            "this machine has no NVIDIA driver (CUDA finds no libcuda.so.1). Install the driver, or "
            "choose the device cpu?");
}

TEST(WhichGpu, NoGpuIsSaidWithWhatIsKnown) {
  auto hidden = node(0);
  hidden.on_node = 8;
  hidden.failure = "cudaErrorNoDevice: no CUDA-capable device is detected; CUDA_VISIBLE_DEVICES is ''";
  EXPECT_EQ(refusal(hidden),
            "this rank sees no GPU (cudaErrorNoDevice: no CUDA-capable device is detected; "
            "CUDA_VISIBLE_DEVICES is ''; "
            "the driver knows of 8 GPUs). Ask SLURM for GPUs (--gres, --gpus-per-node), or look at "
            "CUDA_VISIBLE_DEVICES?");
}

TEST(WhichGpu, OldGpusAreRefusedOneByOne) {
  auto mixed = node(2);
  mixed.gpus[1] = {"Tesla V100", "0000:43:00.0", 7, 0};
  EXPECT_EQ(which_gpu(mixed, {.local_rank = 0, .local_ranks = 2}, false), 0);
  EXPECT_EQ(refusal(mixed, {.local_rank = 1, .local_ranks = 2}),
            "GPU 1 (Tesla V100) is too old (its compute capability is 7.0, the backend needs 8.0). Choose "
            "the device "
            "cpu?");
}

}  // namespace
}  // namespace holdfast::cuda
