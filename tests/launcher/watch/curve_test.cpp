// Curves in characters.
#include "launcher/watch/curve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::launcher::watch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(WatchCurve, FallsFromTheFirstRowToTheLast) {
  EXPECT_THAT(curve({{1, 3.0}, {8, 1.0}}, {}, 16, 4, Charset::ascii),
              ElementsAre("      3 **      ", "          ****  ", "      1       **", "        1 step 8"));
}
TEST(WatchCurve, HasEightDotsInACharacter) {
  const auto drawn = curve({{0, 1.0}, {15, 1.0}}, {}, 16, 3, Charset::utf8);
  ASSERT_EQ(drawn.size(), 3u);
  EXPECT_THAT(drawn[1], HasSubstr("\u2809\u2809\u2809\u2809\u2809\u2809\u2809\u2809"))
      << "a level line stands in the middle";
}
TEST(WatchCurve, KeepsAPeakOfOneStep) {
  std::vector<report::Point> points;
  for (int step = 0; step < 1000; ++step) points.push_back({step, step == 500 ? 9.0 : 1.0});
  EXPECT_THAT(curve(points, {}, 40, 6, Charset::ascii).front(), HasSubstr("      9                *"));
}
TEST(WatchCurve, MarksWhereAttemptsFailed) {
  EXPECT_EQ(curve({{0, 3.0}, {31, 1.0}}, {15, 99}, 40, 3, Charset::ascii).back(),
            "        0              x         step 31");
}
TEST(WatchCurve, OfOnePointThereIsNone) {
  EXPECT_THAT(curve({{1, 3.0}}, {}, 40, 3, Charset::ascii)[1], HasSubstr("no steps to draw yet"));
}

}  // namespace
}  // namespace holdfast::launcher::watch
