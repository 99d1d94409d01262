#pragma once
// For tests that make cuDNN's plans for an H200 where there is none: where there is no driver either, a
// stand-in takes the kernels.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string_view>

#include "src/base/error.hpp"
#include "src/cuda/attention/cudnn_attention.hpp"

namespace holdfast::cuda::test {

/// As cuDNN writes the properties of a GPU.
constexpr std::string_view h200 = R"({
  "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0, "pciDeviceId": 9013,
  "multiProcessorCount": 132, "warpSize": 32, "l2CacheSize": 62914560, "totalGlobalMem": 150754820096,
  "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
  "maxCtasPerSM": 32, "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
  "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "isTccDriver": 0, "supportCoopLaunch": 1})";

/// Loads what stands in for the driver under the name by which cuDNN will look for it, so that a driver that
/// is there does not mind kernels for another GPU than its own.
inline bool has_stand_in() {
  static void* const driver = dlopen(HOLDFAST_DRIVER_STAND_IN, RTLD_NOW | RTLD_GLOBAL);
  return driver != nullptr;
}

class CudnnPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(has_stand_in()) << dlerror();
    try {
      device_ = cudnn_device(h200);
    } catch (const Error& error) {
      GTEST_SKIP() << "cuDNN does not work here: " << error.what();
    }
  }
  /// Of matrices whose rows follow without gaps.
  static AttentionStrides dense(const AttentionShape& s) {
    const std::int64_t width = s.heads * s.head_size, packed = width + 2 * s.kv_heads * s.head_size;
    return {packed, width, width, packed};
  }
  AttentionPlans plans(AttentionPass pass, const AttentionShape& s, bool deterministic = true) const {
    return {pass, s, dense(s), deterministic, device_};
  }
  CudnnDescriptor device_;
};

}  // namespace holdfast::cuda::test
