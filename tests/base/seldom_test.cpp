#include "src/base/seldom.hpp"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

TEST(Seldom, TellsOnceAMinuteHowManyThereWere) {
  Seldom seldom;
  const Clock::time_point start{};
  EXPECT_EQ(seldom.count(start), 1u);
  for (int second = 0; second < 60; ++second)
    EXPECT_EQ(seldom.count(start + std::chrono::seconds(second)), std::nullopt);
  EXPECT_EQ(seldom.count(start + std::chrono::seconds(60)), 61u);
  EXPECT_EQ(seldom.count(start + std::chrono::seconds(200)), 1u);
}

}  // namespace
}  // namespace holdfast
