#include "src/train/loop/step_hold.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/config/scratch.hpp"

namespace holdfast::train {
namespace {

using Seconds = std::chrono::duration<double>;
constexpr std::int64_t last = 5;

struct HeldRun {
  test::Scratch scratch;
  RunDir dir{scratch.path()};
  std::optional<StepHold> hold;
  int alive = 0;

  void say(const std::string& text) const { std::ofstream(dir.hold()) << text; }
  void let_go() const { std::filesystem::remove(dir.hold()); }
  /// Seconds until the step may begin; released as soon as the rank has been heard `enough` times.
  double before(std::int64_t step, int enough = 1000000) {
    if (!hold) hold.emplace(dir, last);
    const auto from = Clock::now();
    hold->before(step, [&] {
      if (++alive == enough) let_go();
    });
    return Seconds(Clock::now() - from).count();
  }
};

TEST(StepHold, NoFileHoldsNothing) {
  HeldRun run;
  for (std::int64_t step = 1; step <= last; ++step) run.before(step);
  EXPECT_EQ(run.alive, 0);
}

TEST(StepHold, AStepTakesItsLeastTime) {
  HeldRun run;
  run.say("0.2 60\n");
  run.before(1);
  EXPECT_EQ(run.alive, 0) << "the first one has no step before it";
  EXPECT_GE(run.before(2) + 0.01, 0.2);
  EXPECT_GE(run.before(3) + 0.01, 0.2);
  EXPECT_GE(run.alive, 4) << "its agent hears of it all the time";
}

TEST(StepHold, TheLastStepWaitsUntilTheFileIsGone) {
  HeldRun run;
  run.say("0 60");
  run.before(last - 1);
  EXPECT_EQ(run.alive, 0);
  EXPECT_GE(run.before(last, 3), 0.09);
  EXPECT_GE(run.alive, 3);
}

TEST(StepHold, AStepThatIsHeldIsLetGoAtOnce) {
  HeldRun run;
  run.say("3600 60");
  run.before(1);
  run.before(2, 2);
  EXPECT_GE(run.alive, 2) << "and looked again soon";
}

TEST(StepHold, TheLastStepDoesNotWaitForEver) {
  HeldRun run;
  run.say("0 0.2");
  EXPECT_GE(run.before(last) + 0.01, 0.2);
}

TEST(StepHold, AFileSystemThatIsAwayLetsNobodyGo) {
  HeldRun run;
  run.say("0.2 60");
  run.before(1);
  const auto aside = run.dir.path.string() + ".away";
  std::filesystem::rename(run.dir.path, aside);
  EXPECT_GE(run.before(2) + 0.01, 0.2);
  std::filesystem::rename(aside, run.dir.path);
}

TEST(StepHold, WhatIsBeingWrittenHoldsTheLastStepNoLongerThanItSays) {
  EXPECT_EQ(read_hold("").least_step.count(), 0);
  EXPECT_EQ(read_hold("0.5").least_step.count(), 0.5);
  EXPECT_EQ(read_hold("0.5").longest_end.count(), 0);
  EXPECT_EQ(read_hold("-1 900").least_step.count(), 0);
  EXPECT_EQ(read_hold("-1 900").longest_end.count(), 900);
}

}  // namespace
}  // namespace holdfast::train
