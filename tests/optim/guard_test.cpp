#include "src/optim/guard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace holdfast::optim {
namespace {

using config::GuardAction;
using testing::HasSubstr;
using Action = GuardFinding::Action;

constexpr double inf = std::numeric_limits<double>::infinity();
const double nan_value = std::numeric_limits<double>::quiet_NaN();

config::Guard settings(GuardAction on_spike = GuardAction::skip) {
  config::Guard g;
  g.window = 8;
  g.loss_factor = 2;
  g.norm_factor = 4;
  g.on_spike = on_spike;
  g.max_skips = 3;
  return g;
}

/// After `count` steps with losses 10, 11, 12, ... and norms 1.
GuardState steady(int count) {
  GuardState state;
  for (int i = 0; i < count; ++i) state = after(state, {}, 10 + i, 1);
  return state;
}

TEST(Guard, WhatHappensToEachKindOfStep) {
  struct Row {
    GuardAction wanted;
    Action action;
  };
  const std::vector<Row> rows = {{GuardAction::stop, Action::stop},
                                 {GuardAction::skip, Action::skip},
                                 {GuardAction::rollback, Action::rollback}};
  for (const auto& row : rows) {
    auto g = settings(row.wanted);
    g.on_nan = row.wanted;
    const auto state = steady(8);  // median loss 13
    EXPECT_EQ(assess(state, g, 26, 4), GuardFinding{}) << "a factor times the median is no spike yet";
    EXPECT_EQ(assess(state, g, 26.1, 4).action, row.action);
    EXPECT_EQ(assess(state, g, 26, 4.1).action, row.action);
    EXPECT_EQ(assess(state, g, nan_value, 1).action, row.action);
    EXPECT_EQ(assess(state, g, 10, nan_value).action, row.action);
    EXPECT_EQ(assess(state, g, inf, 1).action, row.action);
    EXPECT_EQ(assess(state, g, 10, inf).action, row.action);
    EXPECT_EQ(assess(state, g, -inf, 1).action, row.action);
    EXPECT_EQ(assess({}, g, nan_value, 1).action, row.action) << "also before the window is full";
  }
  EXPECT_EQ(assess(steady(8), settings(GuardAction::report), 27, 1).action, Action::report);
  EXPECT_EQ(assess(steady(8), settings(GuardAction::report), nan_value, 1).action, Action::stop);
}

TEST(Guard, SaysWhatWasSeenAndWhatFollows) {
  const auto state = steady(8);
  EXPECT_EQ(assess(state, settings(GuardAction::report), 27, 1).text,
            "loss 27 is above 2 times 13, the median of 8 steps");
  EXPECT_EQ(assess(state, settings(), 27, 5).text,
            "loss 27 is above 2 times 13, the median of 8 steps, gradient norm 5 is above 4 times 1, the "
            "median of 8 steps; skip 1 of at most 3");
  auto g = settings();
  g.on_nan = GuardAction::rollback;
  EXPECT_EQ(assess(state, g, nan_value, inf).text,
            "loss is nan, gradient norm is inf; rollback, skip 1 of at most 3");
  EXPECT_EQ(assess(state, settings(), 12, 1).text, "");
}

TEST(Guard, JudgesSpikesOnceTheWindowIsFull) {
  EXPECT_EQ(assess(steady(7), settings(), 1e9, 1e9).action, Action::ok);
  EXPECT_EQ(assess(steady(8), settings(), 1e9, 1e9).action, Action::skip);
}

TEST(Guard, AFactorOfZeroWatchesNothing) {
  auto g = settings();
  g.loss_factor = 0;
  EXPECT_EQ(assess(steady(8), g, 1e9, 1).action, Action::ok);
  EXPECT_EQ(assess(steady(8), g, 1, 5).action, Action::skip);
  g.norm_factor = 0;
  EXPECT_EQ(assess(steady(8), g, 1e9, 1e9).action, Action::ok);
}

TEST(Guard, TheWindowMovesAndTheRingWraps) {
  const auto state = steady(300);  // losses 302 .. 309 are the newest 8: the median is 305
  EXPECT_EQ(assess(state, settings(), 610, 1).action, Action::ok);
  EXPECT_EQ(assess(state, settings(), 611, 1).action, Action::skip);
  auto wide = settings();
  wide.window = 128;  // 182 .. 309: 245
  EXPECT_EQ(assess(state, wide, 490, 1).action, Action::ok);
  EXPECT_EQ(assess(state, wide, 491, 1).action, Action::skip) << "a run may go on with another window";
}

TEST(Guard, OnlyStepsThatUpdateEnterTheStatistics) {
  const auto state = steady(8);
  for (const auto action : {Action::stop, Action::skip, Action::rollback}) {
    const auto next = after(state, {action, ""}, 1e9, 1e9);
    EXPECT_EQ(next.losses, state.losses);
    EXPECT_EQ(next.norms, state.norms);
    EXPECT_EQ(next.steps, state.steps);
    EXPECT_EQ(next.skips, action == Action::stop ? 0u : 1u);
  }
  for (const auto action : {Action::ok, Action::report}) {
    const auto next = after(state, {action, ""}, 50, 2);
    EXPECT_EQ(next.steps, 9u);
    EXPECT_EQ(next.losses[8], 50);
    EXPECT_EQ(next.norms[8], 2);
    EXPECT_EQ(next.skips, 0u);
  }
}

TEST(Guard, ALastingChangeOfLevelIsReportedUntilItIsUsual) {
  auto state = steady(8);
  const auto g = settings(GuardAction::report);
  int reports = 0;
  for (int i = 0; i < 20; ++i) {
    const auto v = assess(state, g, 100, 1);
    reports += v.action == Action::report;
    state = after(state, v, 100, 1);
  }
  EXPECT_EQ(reports, 5) << "then 100 is the median";
}

TEST(Guard, StopsAfterMaxSkips) {
  auto state = steady(8);
  const auto g = settings();
  for (int i = 0; i < 3; ++i) {
    const auto v = assess(state, g, 100, 1);
    ASSERT_EQ(v.action, Action::skip) << i;
    state = after(state, v, 100, 1);
  }
  const auto last = assess(state, g, 100, 1);
  EXPECT_EQ(last.action, Action::stop);
  EXPECT_THAT(last.text, HasSubstr("the run has skipped 3 times, as often as guard.max_skips allows"));
  EXPECT_EQ(assess(state, g, 12, 1).action, Action::ok);
  auto none = settings(GuardAction::rollback);
  none.max_skips = 0;
  EXPECT_EQ(assess(steady(8), none, 100, 1).action, Action::stop);
}

TEST(Guard, TheSameNumbersGiveTheSameFindingWhateverCameBeforeTheWindow) {
  GuardState other;
  for (int i = 0; i < 200; ++i) other = after(other, {}, 1e6 * i, 1e3);
  GuardState one = steady(3);
  for (int i = 0; i < 8; ++i) {
    one = after(one, {}, 5 + i, 2);
    other = after(other, {}, 5 + i, 2);
  }
  for (const double loss : {1.0, 15.9, 16.0, 16.1, 17.0, 100.0})
    for (const double norm : {1.0, 8.0, 8.1})
      EXPECT_EQ(assess(one, settings(), loss, norm), assess(other, settings(), loss, norm));
}

}  // namespace
}  // namespace holdfast::optim
