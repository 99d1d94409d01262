#include "src/optim/best_loss.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace holdfast::optim {
namespace {

config::Eval settings(int patience, double min_delta = 0) {
  config::Eval e;
  e.every = 10;
  e.patience = patience;
  e.min_delta = min_delta;
  return e;
}

/// After evaluations at steps 10, 20, ...
BestLoss of(const config::Eval& settings, const std::vector<double>& losses) {
  BestLoss best;
  for (std::size_t i = 0; i < losses.size(); ++i)
    best = after(best, settings, 10 * (static_cast<std::int64_t>(i) + 1), losses[i]);
  return best;
}

TEST(BestLoss, IsTheSmallest) {
  const BestLoss best = of(settings(3), {3, 2, 2.5, 2});
  EXPECT_EQ(best.step, 20) << "the same loss again is not better";
  EXPECT_EQ(best.loss, 2);
  EXPECT_EQ(best.waited, 2);
  EXPECT_EQ(of(settings(3), {}), BestLoss{});
}

TEST(BestLoss, EndsTheRunAfterSoManyThatAreNoBetter) {
  EXPECT_FALSE(ends_early(of(settings(2), {3, 2, 2.5}), settings(2)));
  EXPECT_TRUE(ends_early(of(settings(2), {3, 2, 2.5, 2.1}), settings(2)));
  EXPECT_FALSE(ends_early(of(settings(2), {3, 2, 2.5, 1.9}), settings(2)));
  EXPECT_FALSE(ends_early(of(settings(0), {1, 2, 3, 4, 5}), settings(0))) << "never";
  EXPECT_FALSE(ends_early(of(settings(2), {1, 2, 3}), settings(3))) << "with more patience the run goes on";
}

TEST(BestLoss, HasToBeBeatenByMoreThanTheDifference) {
  const auto strict = settings(2, 0.5);
  EXPECT_EQ(of(strict, {3, 2.6, 2.4}).waited, 0) << "small gains add up";
  const BestLoss best = of(strict, {3, 2.9, 2.8});
  EXPECT_TRUE(ends_early(best, strict));
  EXPECT_EQ(best.step, 30) << "the best one is the best one all the same";
  EXPECT_EQ(best.loss, 2.8);
  EXPECT_EQ(best.to_beat, 3);
}

TEST(BestLoss, IsNeverWhatIsNoNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const BestLoss best = of(settings(2), {nan, std::numeric_limits<double>::infinity(), nan});
  EXPECT_EQ(best.step, 0);
  EXPECT_TRUE(ends_early(best, settings(2)));
  EXPECT_EQ(of(settings(2), {nan, 4, nan}).step, 20);
}

}  // namespace
}  // namespace holdfast::optim
