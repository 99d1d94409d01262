// Spikes and NaN, from the job file to the exit code: what is seen is reported, what was decided is repeated
// by every layout and every restart.
#include <gmock/gmock.h>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using ::testing::HasSubstr;

class GuardTest : public TrainingFixture {
 protected:
  /// A step counts as a spike already when its gradient is a little below the usual: in a short run, some are
  /// not, and some are.
  static Sets jumpy(const std::string& action) {
    return {"train.steps=24",         "train.global_batch=16", "optim.schedule=constant",
            "optim.warmup_steps=0",   "checkpoint.every=4",    "guard.window=4",
            "guard.norm_factor=1.05", "guard.max_skips=1000",  "guard.on_spike=" + action};
  }
  static int count(const std::string& text, const std::string& what) {
    int n = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  }
  static Sets with(Sets sets, const Sets& more) {
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  }
};

TEST_F(GuardTest, SpikesAreReportedAndChangeNothing) {
  ASSERT_EQ(train(1, "off", with(jumpy("report"), {"guard.norm_factor=0"})).status, 0);
  const Finished reported = train(1, "report", jumpy("report"));
  ASSERT_EQ(reported.status, 0);
  EXPECT_GT(count(reported.err, "the median of 4 steps"), 0) << reported.err;
  EXPECT_EQ(digest("off"), digest("report"));
}

TEST_F(GuardTest, SkippingAndRollingBackAreTheSameInEveryLayoutAndAfterARestart) {
  ASSERT_EQ(train(1, "report", jumpy("report")).status, 0);
  for (const std::string action : {"skip", "rollback"}) {
    const Finished whole = train(1, action, jumpy(action));
    ASSERT_EQ(whole.status, 0) << whole.err;
    EXPECT_GT(count(whole.err, "the median of 4 steps"), 0) << whole.err;
    EXPECT_NE(digest(action), digest("report")) << "something was skipped";
    EXPECT_EQ(metrics(action).size(), 24u);

    ASSERT_EQ(train(2, action + "2", with(jumpy(action), {"shard.strategy=full_shard"})).status, 0);
    EXPECT_EQ(digest(action + "2"), digest(action));

    const std::string parts = action + " in parts";
    ASSERT_EQ(train(1, parts, with(jumpy(action), {"train.steps=13"})).status, 0);
    ASSERT_EQ(train(2, parts, jumpy(action)).status, 0);
    if (action == "skip") {  // a rollback goes to a checkpoint, and step 13 has one here only
      EXPECT_EQ(digest(parts), digest(action));
    }
  }
}

TEST_F(GuardTest, TooManySkipsEndTheRunForGood) {
  const Finished done = train(1, "run", with(jumpy("skip"), {"guard.norm_factor=0.5", "guard.max_skips=3"}));
  EXPECT_EQ(done.status, 93) << done.err;
  EXPECT_THAT(done.err, HasSubstr("the median of 4 steps"));
}

TEST_F(GuardTest, WhatIsNotANumberEndsTheRunForGood) {
  const Finished done = train(1, "run", {"optim.lr=1e30", "optim.clip_norm=0"});
  EXPECT_EQ(done.status, 93) << done.err;
  EXPECT_THAT(done.err, HasSubstr("diverged"));
  EXPECT_THAT(done.err, HasSubstr("the same rank came to the same when it computed it again"));
}

}  // namespace
}  // namespace holdfast::train
