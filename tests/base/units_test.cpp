#include "src/base/units.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace holdfast {
namespace {

TEST(Units, sizes_are_binary) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1.00 KiB");
  EXPECT_EQ(size_text(std::int64_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(size_text(80e9), "74.51 GiB");
  EXPECT_EQ(size_text(161.72e9), "150.6 GiB");
  EXPECT_EQ(size_text((std::int64_t{1} << 40) - 1), "1.00 TiB");
  EXPECT_EQ(size_text(std::uint64_t{1} << 63), "8.00 EiB");
}

TEST(Units, durations_have_the_unit_that_fits) {
  EXPECT_EQ(duration_text(0), "0.0 s");
  EXPECT_EQ(duration_text(89.9), "89.9 s");
  EXPECT_EQ(duration_text(90), "1.5 min");
  EXPECT_EQ(duration_text(5400), "1.5 h");
  EXPECT_EQ(duration_text(90 * 3600), "90.0 h");
}

}  // namespace
}  // namespace holdfast
