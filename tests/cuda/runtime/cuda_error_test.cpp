// What CUDA's own library says, on machines with a GPU and without one.
#include "src/cuda/runtime/cuda_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/cuda/runtime/cuda_runtime.hpp"

namespace holdfast::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(cudaError_t error, const std::string& gpu = "") {
  try {
    check(error, "cudaMalloc", gpu);
  } catch (const Error& failed) {
    EXPECT_EQ(failed.exit(), Exit::runtime);
    return failed.what();
  }
  return "";
}

TEST(CudaError, SuccessIsNone) { EXPECT_EQ(text_of(cudaSuccess), ""); }

TEST(CudaError, ACallThatFailedIsNamedWithWhatToDo) {
  const std::string gpu = describe_gpu(3, "GPU-8e1c", "0000:3b:00.0");
  EXPECT_EQ(gpu, "GPU 3 (GPU-8e1c, 0000:3b:00.0)");
  EXPECT_THAT(
      text_of(cudaErrorMemoryAllocation, gpu),
      AllOf(HasSubstr("cudaMalloc failed on " + gpu + " (cudaErrorMemoryAllocation: out of memory). "),
            HasSubstr("smaller micro-batch")));
  EXPECT_THAT(text_of(cudaErrorInvalidValue),
              HasSubstr("cudaMalloc failed on the GPU (cudaErrorInvalidValue: "));
  EXPECT_THAT(text_of(cudaErrorSystemNotReady), HasSubstr("nvidia-fabricmanager"));
}

TEST(CudaError, AGpuThatIsLostIsSaidToHaveFailed) {
  for (const cudaError_t error : {cudaErrorECCUncorrectable, cudaErrorIllegalAddress, cudaErrorLaunchFailure,
                                  cudaErrorNvlinkUncorrectable, cudaErrorUnknown}) {
    EXPECT_TRUE(is_lost(error));
    EXPECT_THAT(text_of(error, "GPU 3"),
                AllOf(HasSubstr(std::string("GPU 3 has failed: ") + cudaGetErrorName(error)),
                      HasSubstr("cudaMalloc returned it")));
  }
  // What can be tried again, or was a mistake of ours, leaves the GPU as it is.
  for (const cudaError_t error :
       {cudaSuccess, cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorNotReady,
        cudaErrorInvalidConfiguration, cudaErrorStreamCaptureInvalidated}) {
    EXPECT_FALSE(is_lost(error));
    if (error != cudaSuccess) {
      EXPECT_THAT(text_of(error, "GPU 3"), Not(HasSubstr("GPU 3 has failed")));
    }
  }
}

TEST(CudaError, AGpuThatIsNotThereIsAnError) {
  EXPECT_THROW(make_cuda_runtime(1 << 20, ""), Error);
  check_at_end(cudaErrorCudartUnloading, "cudaFree");  // says nothing and throws nothing
}

}  // namespace
}  // namespace holdfast::cuda
