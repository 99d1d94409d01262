#include "src/cuda/nvml.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/base/env.hpp"

namespace holdfast::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char *first = "0000:1b:00.0", *second = "0000:43:00.0", *none = "0000:ff:00.0";

/// A variable of the fake library's, for a scope.
struct Variable {
  Variable(const char* name, const char* value) : name_(name) { env::set(name, value); }
  ~Variable() { ::unsetenv(name_); }
  const char* name_;
};

TEST(Nvml, WithoutLibraryNothingIsKnownAndNothingFails) {
  const Nvml nvml("libno-such-management-library.so");
  EXPECT_THAT(nvml.absent(), HasSubstr("libno-such-management-library.so"));
  EXPECT_EQ(nvml.driver(), "");
  EXPECT_EQ(nvml.count(), -1);
  EXPECT_THAT(nvml.near_cpus(first), IsEmpty());
  const GpuHealth health = nvml.health(first);
  EXPECT_FALSE(health.clock_mhz || health.watts || health.uncorrected || health.slices ||
               health.memory_bytes);
  EXPECT_THAT(warnings(health), IsEmpty());
  EXPECT_EQ(to_text(health), "");
}

TEST(Nvml, ALibraryThatIsNoneOrRefusesIsAbsent) {
  EXPECT_THAT(Nvml("libm.so.6").absent(), HasSubstr("libm.so.6"));
  const Variable refuses("FAKE_NVML_INIT", "18");
  const Nvml nvml(FAKE_NVML);
  EXPECT_EQ(nvml.absent(), "Driver/library version mismatch");
  EXPECT_EQ(nvml.driver(), "");
  EXPECT_EQ(nvml.count(), -1);
}

TEST(Nvml, ReadsWhatALibrarySays) {
  const Nvml nvml(FAKE_NVML);
  ASSERT_EQ(nvml.absent(), "");
  EXPECT_EQ(nvml.driver(), "580.65.06");
  EXPECT_EQ(nvml.count(), 2);
  const GpuHealth health = nvml.health(first);
  EXPECT_EQ(health.memory_bytes, 80'000'000'000);
  EXPECT_EQ(health.memory_used_bytes, 1'000'000'000);
  EXPECT_EQ(health.clock_mhz, 1755);
  EXPECT_EQ(health.largest_clock_mhz, 1980);
  EXPECT_EQ(health.watts, 412);
  EXPECT_FALSE(health.limit_watts);  // this library has no such function
  EXPECT_EQ(health.celsius, 54);
  EXPECT_EQ(health.corrected, 7u);
  EXPECT_EQ(health.uncorrected, 0u);
  EXPECT_EQ(health.slices, false);
  EXPECT_EQ(health.links, 18);
  EXPECT_EQ(health.links_down, 0);
  EXPECT_EQ(to_text(health), "1755 of 1980 MHz, 412 W, 54 C");
  EXPECT_THAT(warnings(health), IsEmpty());
  EXPECT_THAT(nvml.near_cpus(first), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(nvml.near_cpus(second), ElementsAre(64, 65, 66, 67));
  EXPECT_EQ(to_text(nvml.health(second)), "345 of 1980 MHz, 412 W, 54 C, MIG");
  EXPECT_FALSE(nvml.health(none).clock_mhz);
  EXPECT_THAT(nvml.near_cpus(none), IsEmpty());
}

TEST(Nvml, WarnsOfWhatIsWrongAndOfNothingElse) {
  const Nvml nvml(FAKE_NVML);
  {
    const Variable harmless("FAKE_NVML_SLOWDOWNS",
                            "0x117");  // idle, set clocks, power cap, sync boost, display
    EXPECT_THAT(warnings(nvml.health(first)), IsEmpty());
  }
  const Variable hot("FAKE_NVML_SLOWDOWNS", "0xc4"), errors("FAKE_NVML_UNCORRECTED", "1");
  const Variable links("FAKE_NVML_LINKS", "16");
  EXPECT_THAT(warnings(nvml.health(first)),
              ElementsAre("its memory had 1 error that could not be corrected since the driver was loaded",
                          "it is slowed down (thermal slowdown by the hardware, power brake, 54 C)",
                          "2 of its 18 NVLinks are down or not connected"));
  const Variable bridgeless("FAKE_NVML_LINKS", "0");
  EXPECT_EQ(nvml.health(first).links_down, 18);
  EXPECT_EQ(warnings(nvml.health(first)).size(), 2u);
}

}  // namespace
}  // namespace holdfast::cuda
