#include "src/optim/schedule.hpp"

#include <gtest/gtest.h>

namespace holdfast::optim {
namespace {

TEST(Schedule, RisesLinearlyThenFallsAlongACosineToTheMinimum) {
  config::Optim o;
  o.lr = 1e-3, o.min_lr = 1e-4, o.warmup_steps = 10;
  EXPECT_DOUBLE_EQ(learning_rate(o, 0, 110), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(o, 9, 110), 1e-3);
  EXPECT_NEAR(learning_rate(o, 59, 110), 0.5 * (1e-3 + 1e-4), 1e-12);  // half way
  EXPECT_DOUBLE_EQ(learning_rate(o, 109, 110), 1e-4);
  for (int step = 10; step < 109; ++step)
    EXPECT_GT(learning_rate(o, step, 110), learning_rate(o, step + 1, 110));
}

TEST(Schedule, WorksWithoutWarmupAndWithNothingElse) {
  config::Optim o;
  o.lr = 1e-3, o.min_lr = 0, o.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(o, 0, 1), 0);
  EXPECT_LT(learning_rate(o, 0, 10), 1e-3);
  o.warmup_steps = 20;
  EXPECT_DOUBLE_EQ(learning_rate(o, 9, 10), 5e-4);
}

}  // namespace
}  // namespace holdfast::optim
