#include "src/nvml/library.hpp"

#include <gmock/gmock.h>

#include "tests/nvml/fake_nvml.hpp"

namespace holdfast::nvml {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(NvmlLibrary, that_is_missing_or_another_one_answers_nothing) {
  for (const std::string name : {"libno-such-management-library.so", "libm.so.6"}) {
    const Library library(name);
    EXPECT_THAT(library.absent(), HasSubstr(name));
    EXPECT_EQ(library.found(), name == "libm.so.6");
    EXPECT_EQ(library.driver(), "");
    EXPECT_FALSE(library.count());
    EXPECT_FALSE(library.by_bus("0000:18:00.0"));
  }
}

TEST(NvmlLibrary, that_does_not_start_says_why_and_answers_nothing) {
  const FakeVariable refuses("INIT", "18");
  const Library library(FAKE_NVML);
  EXPECT_TRUE(library.found());
  EXPECT_EQ(library.absent(), "Driver/library version mismatch");
  EXPECT_EQ(library.driver(), "");
  EXPECT_FALSE(library.count());
}

TEST(NvmlLibrary, tells_what_it_has_functions_for) {
  Library library(FAKE_NVML);
  ASSERT_EQ(library.absent(), "");
  EXPECT_EQ(library.driver(), "580.65.06");
  EXPECT_EQ(library.count(), 2);
  const auto first = library.by_bus("0000:18:00.0"), second = library.by_bus("0000:9a:00.0");
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(library.by_bus("0000:ff:00.0"));
  EXPECT_EQ(library.by_index(0), first);
  EXPECT_EQ(library.uuid(*first), "GPU-5f1b0a77-0001");
  EXPECT_STREQ(library.pci(*second)->id, "00000000:9A:00.0");
  EXPECT_EQ(library.sm_clock_mhz(*first), 1755);
  EXPECT_EQ(library.link_bytes(*second), 0);
  EXPECT_EQ(library.sram_errors(*first)->threshold_exceeded, 0u);
  const FakeVariable sram("SRAM_EXCEEDED", "1");
  EXPECT_EQ(library.sram_errors(*first)->threshold_exceeded, 1u);
  EXPECT_EQ(library.sram_errors(*second)->threshold_exceeded, 0u);
  const FakeVariable sent("LINK_KIB", "3");
  EXPECT_EQ(library.link_bytes(*first), 2 * 3 * 1024) << "sent and received";
  EXPECT_FALSE(library.power_limit_mw(*first)) << "this library has no such function";
  EXPECT_THAT(library.near_cpus(*first), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(library.near_cpus(*second), ElementsAre(64, 65, 66, 67));
  EXPECT_FALSE(library.next_event()) << "nobody listens";
  const FakeVariable xid("XID", "79"), lost("LOST", "1");
  library.listen(*first);
  EXPECT_EQ(library.next_event()->data, 79u);
  EXPECT_FALSE(library.next_event());
  Result result = success;
  EXPECT_FALSE(library.slowdowns(*first, &result));
  EXPECT_EQ(result, gpu_is_lost);
  EXPECT_EQ(library.words(result), "GPU is lost");
}

}  // namespace
}  // namespace holdfast::nvml
