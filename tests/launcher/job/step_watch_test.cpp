#include "launcher/job/step_watch.hpp"

#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using Probe = StepWatch::Probe;

TEST(StepWatch, FirstAgentsMayBeSlowToCome) {
  StepWatch watch;
  watch.started(0);
  for (double now = 1; now < 30; ++now) {
    watch.probed(Probe::refuses, now);
    EXPECT_FALSE(watch.wants_new_step(now)) << now;
  }
  watch.probed(Probe::refuses, 31);
  EXPECT_TRUE(watch.wants_new_step(31));
}

TEST(StepWatch, ANodeThatComesBackGetsItsStepAtOnce) {
  StepWatch watch;
  watch.started(0);
  watch.probed(Probe::answers, 5);
  watch.probed(Probe::silent, 100);
  EXPECT_FALSE(watch.wants_new_step(100)) << "one silence is none";
  watch.probed(Probe::refuses, 101);
  EXPECT_TRUE(watch.wants_new_step(101));
  EXPECT_TRUE(watch.came_back());
  watch.started(101);
  EXPECT_FALSE(watch.wants_new_step(101.5));
  watch.probed(Probe::refuses, 102);
  EXPECT_FALSE(watch.wants_new_step(103)) << "the new one is starting";
  watch.probed(Probe::answers, 104);
  EXPECT_FALSE(watch.wants_new_step(104));
  EXPECT_TRUE(watch.reached_within(10, 105));
}

TEST(StepWatch, AnAgentThatIsGoneFromALivingNode) {
  StepWatch watch;
  watch.started(0);
  watch.probed(Probe::answers, 5);
  watch.probed(Probe::refuses, 10);
  EXPECT_FALSE(watch.wants_new_step(10)) << "its guardian may be starting another";
  watch.probed(Probe::refuses, 11);
  EXPECT_TRUE(watch.wants_new_step(11));
}

TEST(StepWatch, ASilentNodeIsTriedAgainNowAndThen) {
  StepWatch watch;
  watch.started(0);
  watch.probed(Probe::answers, 1);
  const auto steps_between = [&watch](double begin, double end) {
    int steps = 0;
    for (double now = begin; now < end; ++now) {
      watch.probed(Probe::silent, now);
      if (!watch.wants_new_step(now)) continue;
      ++steps;
      watch.started(now);
    }
    return steps;
  };
  EXPECT_EQ(steps_between(2, 122), 3) << "after 15, 30 and 60 s";
  EXPECT_LE(steps_between(122, 86400), 94) << "and at last every 16 minutes";
  watch.probed(Probe::refuses, 86401);
  EXPECT_TRUE(watch.wants_new_step(86401)) << "it is back";
  watch.started(86401);
  watch.probed(Probe::answers, 86402);
  EXPECT_EQ(steps_between(86403, 86423), 1) << "and is looked after as at first";
}

}  // namespace
}  // namespace holdfast::launcher
