#include "launcher/agent/daemon/loop_watch.hpp"

#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

class LoopWatchTest : public testing::Test {
 protected:
  /// The guardian looks again and again until then.
  void looks_until(double end) {
    while (now < end) watch.looked(now += LoopWatch::between_looks_s);
  }
  bool still() const { return watch.stands_still(now); }
  double now = 100;
  LoopWatch watch{100};
};

TEST_F(LoopWatchTest, ALoopThatTellsNothingAnyMoreStandsStill) {
  watch.told(false, now);
  looks_until(100 + stuck_agent_s);
  EXPECT_FALSE(still());
  watch.told(false, now);
  looks_until(100 + 2 * stuck_agent_s);
  EXPECT_FALSE(still());
  looks_until(101 + 2 * stuck_agent_s);
  EXPECT_TRUE(still());
}

TEST_F(LoopWatchTest, OneThatWasNeverHeardOrEndsIsLeftAlone) {
  looks_until(200);
  EXPECT_FALSE(still());
  watch.told(false, now);
  watch.told(true, now);
  looks_until(300);
  EXPECT_FALSE(still());
}

TEST_F(LoopWatchTest, TimeInWhichTheGuardianDidNotRunDoesNotCount) {
  watch.told(false, now);
  looks_until(101);
  watch.looked(now += 1000);
  EXPECT_FALSE(still());
  looks_until(1101 + stuck_agent_s);
  EXPECT_TRUE(still());
}

}  // namespace
}  // namespace holdfast::launcher
