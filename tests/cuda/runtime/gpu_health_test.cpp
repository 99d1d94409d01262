#include "src/cuda/runtime/gpu_health.hpp"

#include <gmock/gmock.h>

#include "tests/nvml/fake_nvml.hpp"

namespace holdfast::cuda {
namespace {

using nvml::FakeVariable;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char *first = "0000:18:00.0", *none = "0000:ff:00.0";

TEST(GpuHealth, WithoutLibraryOrGpuNothingIsKnownAndNothingFails) {
  for (const char* library : {"libno-such-management-library.so", FAKE_NVML}) {
    const GpuHealth health = health_of(nvml::Library(library), none);
    EXPECT_FALSE(health.clock_mhz || health.watts || health.uncorrected || health.slices ||
                 health.memory_bytes);
    EXPECT_THAT(warnings(health), IsEmpty());
    EXPECT_EQ(to_text(health), "");
  }
}

TEST(GpuHealth, IsWhatALibrarySays) {
  const nvml::Library library(FAKE_NVML);
  const GpuHealth health = health_of(library, first);
  EXPECT_EQ(health.memory_bytes, std::int64_t{80} << 30);
  EXPECT_EQ(health.memory_used_bytes, std::int64_t{1} << 30);
  EXPECT_EQ(health.clock_mhz, 1755);
  EXPECT_EQ(health.largest_clock_mhz, 1980);
  EXPECT_EQ(health.watts, 412);
  EXPECT_FALSE(health.limit_watts);  // this library has no such function
  EXPECT_EQ(health.celsius, 54);
  EXPECT_EQ(health.corrected, 7);
  EXPECT_EQ(health.uncorrected, 0);
  EXPECT_EQ(health.slices, false);
  EXPECT_EQ(health.links, 18);
  EXPECT_EQ(health.links_down, 0);
  EXPECT_EQ(to_text(health), "1755 of 1980 MHz, 412 W, 54 C");
  EXPECT_THAT(warnings(health), IsEmpty());
  const FakeVariable divided("MIG", "1");
  EXPECT_EQ(to_text(health_of(library, first)), "1755 of 1980 MHz, 412 W, 54 C, MIG");
}

TEST(GpuHealth, WarnsOfWhatIsWrongAndOfNothingElse) {
  const nvml::Library library(FAKE_NVML);
  {
    const FakeVariable harmless("SLOWDOWNS", "0x117");  // idle, set clocks, power cap, sync boost, display
    EXPECT_THAT(warnings(health_of(library, first)), IsEmpty());
  }
  const FakeVariable hot("SLOWDOWNS", "0xc4"), errors("UNCORRECTED", "1");
  const FakeVariable links("LINKS", "16");
  EXPECT_THAT(warnings(health_of(library, first)),
              ElementsAre("its memory had 1 error that could not be corrected since the driver was loaded",
                          "it is slowed down (thermal slowdown by the hardware, power brake, 54 C)",
                          "2 of its 18 NVLinks are down or not connected"));
  const FakeVariable bridgeless("LINKS", "0");
  EXPECT_EQ(health_of(library, first).links_down, 18);
  EXPECT_EQ(warnings(health_of(library, first)).size(), 2u);
}

}  // namespace
}  // namespace holdfast::cuda
