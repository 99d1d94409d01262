#include "src/device/load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/device/module_interface.hpp"

namespace holdfast::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Opens `wanted` with the module at `module` ("": none is named) and keeps what the log says.
struct Opened {
  Opened(const std::string& wanted, const std::string& module, DeviceOptions options = {.threads = 3}) {
    module.empty() ? (void)::unsetenv("HOLDFAST_CUDA_MODULE") : env::set("HOLDFAST_CUDA_MODULE", module);
    log::start("rank 5");
    ::testing::internal::CaptureStderr();
    try {
      device = open_device(wanted, options);
    } catch (const Unavailable& error) {
      what = error.what();
      unavailable = true;
      exit = error.exit();
    } catch (const Error& error) {
      what = error.what();
      exit = error.exit();
    }
    log = ::testing::internal::GetCapturedStderr();
    ::unsetenv("HOLDFAST_CUDA_MODULE");
  }
  std::unique_ptr<Device> device;
  std::string what, log;
  Exit exit = Exit::done;
  bool unavailable = false;
};

/// The releases that a driver can run, and its refusal.
std::string releases_for(int driver, const std::vector<CudaModule>& modules) {
  std::string text;
  try {
    for (const auto& module : modules_for(driver, modules)) text += std::to_string(module.release) + " ";
  } catch (const Unavailable& error) {
    EXPECT_EQ(error.exit(), Exit::runtime);
    return error.what();
  }
  return text;
}

TEST(Load, ADriverRunsItsOwnReleaseOfCudaAndOlderOnes) {
  const std::vector<CudaModule> both{{13, "/m-13.so"}, {12, "/m-12.so"}};
  EXPECT_EQ(releases_for(13000, both), "13 12 ");
  EXPECT_EQ(releases_for(14010, both), "13 12 ");
  EXPECT_EQ(releases_for(12040, both), "12 ");
  EXPECT_EQ(releases_for(12000, both), "12 ");  // within one major release any driver serves
  EXPECT_EQ(releases_for(0, both), "13 12 ");   // the module will say that there is no driver
  EXPECT_EQ(releases_for(11080, {{.file = "/named.so"}}), "0 ");
  EXPECT_EQ(releases_for(11080, both),
            "the NVIDIA driver is too old (it serves CUDA 11.8; /m-13.so needs CUDA 13; /m-12.so needs CUDA "
            "12). Install a driver for CUDA 12, or add a backend that was built with an older CUDA?");
  EXPECT_EQ(
      releases_for(12090, {{13, "/m-13.so"}}),
      "the NVIDIA driver is too old (it serves CUDA 12.9; /m-13.so needs CUDA 13). Install a driver for "
      "CUDA 13, or add a backend that was built with an older CUDA?");
}

TEST(Load, AModuleWhoseLibrariesAreMissingIsPassedOver) {
  ::testing::internal::CaptureStderr();
  const auto device = open_module({{13, NEEDS_ABSENT_LIBRARY_MODULE}, {12, FAKE_MODULE}}, {.threads = 3});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(device->describe(), "CPU, 77 threads");
  EXPECT_THAT(log, AllOf(HasSubstr("fake_module.so is taken, since a newer one cannot be loaded"),
                         HasSubstr("libholdfast_absent_library.so")));
}

TEST(Load, CpuAsksForNoModule) {
  const Opened cpu("cpu", WRONG_STAMP_MODULE);
  ASSERT_TRUE(cpu.device) << cpu.what;
  EXPECT_TRUE(cpu.device->is_host());
  EXPECT_THAT(cpu.log, HasSubstr("rank 5: device: CPU, 3 threads\n"));
}

TEST(Load, AnotherWordIsAMistake) {
  const Opened unknown("cudda", "");
  EXPECT_EQ(unknown.exit, Exit::usage);
  EXPECT_THAT(unknown.what, AllOf(HasSubstr("there is no device 'cudda'"), HasSubstr("did you mean cuda?")));
}

TEST(Load, WithoutModuleCudaIsRefusedAndAutoTakesTheCpu) {
  const Opened cuda("cuda", "/no/such/module.so");
  EXPECT_TRUE(cuda.unavailable);
  EXPECT_THAT(cuda.what, AllOf(HasSubstr("there is no CUDA backend"), HasSubstr("/no/such/module.so")));
  const Opened chosen("auto", "/no/such/module.so");
  ASSERT_TRUE(chosen.device);
  EXPECT_THAT(chosen.log, HasSubstr("device: CPU, 3 threads, not CUDA: there is no CUDA backend"));
  // One line for a node's ranks.
  const Opened second("auto", "/no/such/module.so", {.local_rank = 1, .local_ranks = 2, .threads = 3});
  ASSERT_TRUE(second.device);
  EXPECT_EQ(second.log, "");
}

TEST(Load, AModuleOfThisBuildIsOpened) {
  for (const char* wanted : {"cuda", "auto"}) {
    const Opened fake(wanted, FAKE_MODULE);
    ASSERT_TRUE(fake.device) << fake.what;
    EXPECT_EQ(fake.device->describe(), "CPU, 77 threads");
    EXPECT_THAT(fake.log,
                AllOf(HasSubstr("rank 5: opened\n"), HasSubstr("rank 5: device: CPU, 77 threads\n")));
  }
}

TEST(Load, WhatTheModuleThrowsArrives) {
  const DeviceOptions no_gpu{.local_rank = 1, .local_ranks = 3}, broken{.local_rank = 2, .local_ranks = 3};
  const Opened refused("cuda", FAKE_MODULE, no_gpu);
  EXPECT_TRUE(refused.unavailable);
  EXPECT_EQ(refused.what, std::string("rank 1 has no GPU (of the fake). buy one?"));
  EXPECT_TRUE(Opened("auto", FAKE_MODULE, no_gpu).device);
  // A broken GPU is no reason to go on without it.
  for (const char* wanted : {"cuda", "auto"}) {
    const Opened failed(wanted, FAKE_MODULE, broken);
    EXPECT_FALSE(failed.device);
    EXPECT_FALSE(failed.unavailable);
    EXPECT_EQ(failed.exit, Exit::runtime);
    EXPECT_THAT(failed.what, HasSubstr("the GPU is broken"));
  }
}

TEST(Load, AModuleOfAnotherBuildIsNotCalled) {
  const Opened wrong("cuda", WRONG_STAMP_MODULE);
  EXPECT_TRUE(wrong.unavailable);
  EXPECT_THAT(wrong.what,
              AllOf(HasSubstr("belongs to another build"), HasSubstr("it is of 'holdfast of last year'"),
                    HasSubstr("Install both from the same build?")));
  EXPECT_THAT(Opened("auto", WRONG_STAMP_MODULE).log, HasSubstr("belongs to another build"));
}

TEST(Load, NotEveryLibraryIsAModule) {
  EXPECT_THAT(Opened("cuda", NO_OPEN_MODULE).what, HasSubstr("it has no holdfast_module_open"));
}

TEST(Load, AMissingLibraryIsNamed) {
  const Opened missing("cuda", NEEDS_ABSENT_LIBRARY_MODULE);
  EXPECT_TRUE(missing.unavailable);
  EXPECT_THAT(missing.what, AllOf(HasSubstr("the CUDA backend cannot be loaded"),
                                  HasSubstr("libholdfast_absent_library.so"), HasSubstr("LD_LIBRARY_PATH?")));
}

#ifdef CUDA_MODULE
TEST(Load, TheRealModuleSaysWhyItCannotBeUsed) {
  const Opened cuda("cuda", CUDA_MODULE);
  if (cuda.device) GTEST_SKIP() << "this machine has a GPU: " << cuda.device->describe();
  EXPECT_TRUE(cuda.unavailable) << cuda.what;
  EXPECT_EQ(cuda.exit, Exit::runtime);
  EXPECT_THAT(cuda.what, Not(HasSubstr("cannot be loaded")));
  if (::access("/dev/nvidiactl", F_OK) != 0) {
    EXPECT_THAT(cuda.what, HasSubstr("this machine has no NVIDIA driver"));
  }
  const Opened chosen("auto", CUDA_MODULE);
  ASSERT_TRUE(chosen.device);
  EXPECT_THAT(chosen.log, HasSubstr("device: CPU, 3 threads, not CUDA: " + cuda.what));
}
#endif

}  // namespace
}  // namespace holdfast::device
