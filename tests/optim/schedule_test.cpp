#include "src/optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace holdfast::optim {
namespace {

using config::Schedule;

config::Optim settings(Schedule schedule, int warmup = 10, int decay = 0) {
  config::Optim o;
  o.lr = 1e-3;
  o.min_lr = 1e-4;
  o.warmup_steps = warmup;
  o.schedule = schedule;
  o.decay_steps = decay;
  return o;
}

constexpr Schedule all[] = {Schedule::cosine, Schedule::linear, Schedule::constant, Schedule::wsd};

TEST(Schedule, AllRiseAlikeToTheHighestRate) {
  for (const auto schedule : all) {
    const auto o = settings(schedule);
    for (int step = 0; step < 10; ++step)
      EXPECT_DOUBLE_EQ(learning_rate(o, step, 110), 1e-3 * (step + 1) / 10);
    EXPECT_LE(learning_rate(o, 10, 110), 1e-3);
  }
}

TEST(Schedule, TheWarmupMayBeAPartOfTheRun) {
  auto o = settings(Schedule::cosine);
  o.warmup_ratio = 0.1;
  for (int step = 0; step < 200; ++step)
    EXPECT_EQ(learning_rate(o, step, 200), learning_rate(settings(Schedule::cosine, 20), step, 200));
  o.warmup_ratio = 0.07;
  EXPECT_EQ(config::warmup_steps_of(o, 100), 7) << "0.07 * 100 is a bit more than 7";
  EXPECT_EQ(config::warmup_steps_of(o, 101), 8) << "a begun step counts";
  o.warmup_ratio = 0;
  EXPECT_EQ(config::warmup_steps_of(o, 100), 10);
}

TEST(Schedule, TheLastStepHasTheMinimumExactly) {
  for (const auto schedule : {Schedule::cosine, Schedule::linear, Schedule::wsd})
    for (const int steps : {12, 110, 1000})
      EXPECT_EQ(learning_rate(settings(schedule), steps - 1, steps), 1e-4);
  EXPECT_EQ(learning_rate(settings(Schedule::constant), 109, 110), 1e-3);
}

TEST(Schedule, CosineFallsAlongHalfAWave) {
  const auto o = settings(Schedule::cosine);
  EXPECT_NEAR(learning_rate(o, 59, 110), 0.5 * (1e-3 + 1e-4), 1e-12);  // half way
  EXPECT_NEAR(learning_rate(o, 34, 110), 1e-4 + 9e-4 * 0.5 * (1 + std::cos(std::numbers::pi / 4)), 1e-12);
  for (int step = 10; step < 109; ++step)
    EXPECT_GT(learning_rate(o, step, 110), learning_rate(o, step + 1, 110));
}

TEST(Schedule, LinearFallsByTheSameEachStep) {
  const auto o = settings(Schedule::linear);
  for (int step = 10; step < 110; ++step)
    EXPECT_NEAR(learning_rate(o, step, 110), 1e-3 - 9e-4 * (step - 9) / 100, 1e-15);
}

TEST(Schedule, ConstantStays) {
  for (int step = 10; step < 110; ++step)
    EXPECT_EQ(learning_rate(settings(Schedule::constant), step, 110), 1e-3);
}

TEST(Schedule, WsdIsStableThenFallsOverItsLastSteps) {
  for (const int given : {0, 10, 20, 100}) {
    const auto o = settings(Schedule::wsd, 10, given);
    const int decay = given > 0 ? given : 11;  // a tenth of 110
    const int begin = 110 - decay;
    for (int step = 10; step < begin; ++step) EXPECT_EQ(learning_rate(o, step, 110), 1e-3) << step;
    for (int step = begin; step < 110; ++step)
      EXPECT_NEAR(learning_rate(o, step, 110), 1e-3 - 9e-4 * (step + 1 - begin) / decay, 1e-15) << step;
  }
  EXPECT_EQ(learning_rate(settings(Schedule::wsd, 0), 3, 5), 1e-3) << "a decay of one step";
  EXPECT_EQ(learning_rate(settings(Schedule::wsd, 0), 4, 5), 1e-4);
}

TEST(Schedule, WorksWithoutWarmupAndWithNothingElse) {
  for (const auto schedule : {Schedule::cosine, Schedule::linear, Schedule::wsd}) {
    auto o = settings(schedule, 0);
    o.min_lr = 0;
    EXPECT_EQ(learning_rate(o, 0, 1), 0);
    EXPECT_LE(learning_rate(o, 0, 10), 1e-3);
  }
  for (const auto schedule : all)
    EXPECT_DOUBLE_EQ(learning_rate(settings(schedule, 20), 9, 10), 5e-4) << "nothing but warmup";
  for (const auto schedule : all)
    EXPECT_DOUBLE_EQ(learning_rate(settings(schedule, 10), 9, 10), 1e-3) << "the warmup ends the run";
}

}  // namespace
}  // namespace holdfast::optim
