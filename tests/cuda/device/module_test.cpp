// The CUDA backend as holdfast-train loads it, on a driver that finds no GPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/env.hpp"
#include "src/device/load.hpp"
#include "src/device/module_interface.hpp"

namespace holdfast::device {
namespace {

TEST(CudaModule, ChoosesItsEnvironmentBeforeTheDriverStarts) {
  if (env::get("CUDA_DEVICE_MAX_CONNECTIONS")) GTEST_SKIP() << "somebody has chosen it";
  // By its name, CUDA finds the one that is loaded already.
  void* const driver = ::dlopen(HOLDFAST_DRIVER_WITHOUT_DEVICES, RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(driver, nullptr) << ::dlerror();
  env::set("HOLDFAST_CUDA_MODULE", CUDA_MODULE);
  try {
    open_device("cuda", {});
    FAIL() << "there is no GPU";
  } catch (const Unavailable& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cudaErrorNoDevice"));
  }
  const auto connections = reinterpret_cast<const char* (*)()>(::dlsym(driver, "stand_in_connections"));
  EXPECT_STREQ(connections(), "32");
}

}  // namespace
}  // namespace holdfast::device
