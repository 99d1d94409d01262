// The GPU of tests/cuda/test_gpu.hpp: a real one. The tests of kernels are the same as on the simulator.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "src/cuda/runtime/cuda_runtime.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda::test {

Runtime& gpu() {
  static const std::unique_ptr<Runtime> runtime = make_cuda_runtime(0, "");
  return *runtime;
}

StreamHandle stream() {
  static const StreamHandle handle = gpu().stream_create(Runtime::Priority::normal);
  return handle;
}

void finish() {
  static const EventHandle event = gpu().event_create();
  gpu().event_record(event, stream());
  while (!gpu().event_passed(event)) std::this_thread::yield();
}

void reseed(std::uint64_t) {}

}  // namespace holdfast::cuda::test

/// 77: there is no GPU here, nothing was tested.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  constexpr int skipped = 77;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    std::printf("no GPU: %s\n", cudaGetErrorString(error));
    return skipped;
  }
  return RUN_ALL_TESTS();
}
