#include "checkpoint/io/crc32c.hpp"

#include <cpuid.h>
#include <gtest/gtest.h>

#include <vector>

namespace holdfast::checkpoint {
namespace {

/// XINUSE of this thread: bit 2 while the upper halves of ymm0 to ymm15 are in use, bit 6 the same of zmm0 to
/// zmm15 (Intel's manual, volume 1, 13.6).
std::uint32_t parts_in_use() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return low;
}
bool can_ask() {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(0xd, 1, &a, &b, &c, &d) != 0 && (a & 1u << 2) != 0;
}

TEST(Crc32c, IsThatOfTheStandard) { EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u); }

TEST(Crc32c, LeavesNoUpperHalvesOfVectorRegistersInUse) {
  if (!can_ask()) GTEST_SKIP() << "this processor does not say which registers are in use";
  constexpr std::uint32_t upper_halves = 1u << 2 | 1u << 6;
  for (const std::size_t bytes : {std::size_t{9}, std::size_t{300}, std::size_t{1} << 20}) {
    const std::vector<char> block(bytes, 'x');
    const std::uint32_t crc = crc32c(block.data(), bytes);
    EXPECT_EQ(parts_in_use() & upper_halves, 0u) << "after " << bytes << " bytes, whose CRC is " << crc;
  }
}

}  // namespace
}  // namespace holdfast::checkpoint
