// How often to save: against a simulation that knows nothing of the formulas, and when to by SavePolicy.
#include "src/train/save/interval.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "src/train/save/save_policy.hpp"

namespace holdfast::train {
namespace {

using ::testing::HasSubstr;

/// A run and what happens to it. Times in seconds.
struct World {
  double mtbf, restart;
  double step, stall, persist, slowdown;
  SaveCosts costs() const { return {step, stall, persist, slowdown}; }
};

/// Part of `horizon` that went into steps that were not done again. `next`: steps to the next save, asked
/// after every save and restart. `hear`: told of every save and failure.
template <class Next, class Hear>
double goodput(const World& w, std::uint64_t seed, double horizon, Next next, Hear hear) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(1 / w.mtbf);
  double now = 0, failure = gap(random);
  std::int64_t done = 0, durable = 0, writing = -1;  // steps; of the save that is being written
  double durable_at = 0;
  std::int64_t until = next();
  while (now < horizon) {
    double end = now + w.step;
    if (writing >= 0) {  // slower for as long as the write goes on, and no longer
      const double beside = std::min(w.persist > 0 ? durable_at - now : 0, w.step / (1 - w.slowdown));
      end = now + beside + (w.step - beside * (1 - w.slowdown));
    }
    const bool saves = --until == 0;
    const double stalled = saves ? end + w.stall : end;
    if (failure < stalled) {
      if (writing >= 0 && durable_at <= failure) durable = writing;
      writing = -1;
      done = durable;
      now = failure + w.restart;
      failure = now + gap(random);
      hear(true, w.step);
      until = next();
      continue;
    }
    hear(false, w.step);
    now = stalled;
    ++done;
    if (writing >= 0 && durable_at <= now) {
      durable = writing;
      writing = -1;
    }
    if (!saves) continue;
    if (writing >= 0) {
      now = durable_at;  // only one at a time: training waits
      durable = writing;
    }
    writing = done;
    durable_at = now + w.persist;
    until = next();
  }
  return static_cast<double>(done) * w.step / now;
}

double goodput_of(const World& w, std::uint64_t seed, double horizon, std::int64_t every) {
  return goodput(
      w, seed, horizon, [every] { return every; }, [](bool, double) {});
}

const std::vector<World> worlds = {
    {3600, 60, 1.0, 0.5, 20, 0.02},     // a thousand nodes
    {11124, 300, 5.0, 0.6, 51, 0.05},   // Llama 3's failures, ByteCheckpoint's costs
    {1800, 30, 0.2, 0.02, 1.5, 0.1},    // cheap saves, many failures
    {86400, 600, 10.0, 12.0, 40, 0.0},  // dear ones
    {900, 20, 2.0, 6.0, 10, 0.3},       // a run that hardly lives
};

/// The best of a fine grid of intervals, each over the same failures.
double best_goodput(const World& w, std::uint64_t seed, double horizon) {
  double best = 0;
  for (double steps = 1; steps < 40000; steps = std::max(steps + 1, steps * 1.25))
    best = std::max(best, goodput_of(w, seed, horizon, static_cast<std::int64_t>(steps)));
  return best;
}

constexpr double no_limit = 0;
constexpr std::int64_t far = 1 << 30;

TEST(Interval, IsWithinTwoPercentOfTheBestGoodput) {
  for (const World& w : worlds) {
    const double horizon = 200 * w.mtbf;
    const Interval chosen = best_interval(w.costs(), 1 / w.mtbf, no_limit, far);
    const double mine = goodput_of(w, 1, horizon, chosen.steps), best = best_goodput(w, 1, horizon);
    EXPECT_GE(mine, 0.98 * best) << "MTBF " << w.mtbf << ": every " << chosen.steps;
    RecordProperty("goodput_of_mtbf_" + std::to_string(static_cast<int>(w.mtbf)),
                   std::to_string(mine / best));
  }
}

/// That the test above can fail: intervals that are far off do.
TEST(Interval, FarOffIsNotWithinTwoPercent) {
  const World& w = worlds[4];
  const Interval chosen = best_interval(w.costs(), 1 / w.mtbf, no_limit, far);
  const double best = best_goodput(w, 1, 200 * w.mtbf);
  EXPECT_LT(goodput_of(w, 1, 200 * w.mtbf, 6 * chosen.steps), 0.98 * best);
  EXPECT_LT(goodput_of(w, 1, 200 * w.mtbf, std::max<std::int64_t>(1, chosen.steps / 6)), 0.98 * best);
}

/// It begins with an interval and a failure rate that are wrong by far, and learns.
TEST(Interval, LearnsTheFailureRateAndTheCosts) {
  for (const World& w : worlds)
    for (const double wrong : {0.1, 10.0}) {
      IntervalTuner tuner(1000, far, no_limit, FailureRate(wrong * w.mtbf));
      int steps_beside = 0;
      const double horizon = 200 * w.mtbf;
      const double mine = goodput(
          w, 2, horizon,
          [&] {
            tuner.saved(w.stall, w.persist);
            steps_beside = static_cast<int>(std::ceil(w.persist / w.step));
            return tuner.now().steps;
          },
          [&](bool failed, double step_s) {
            if (failed) tuner.rate().failed();
            const bool beside = --steps_beside >= 0;
            tuner.step(beside ? step_s + w.slowdown * w.persist / std::ceil(w.persist / w.step) : step_s,
                       beside);
          });
      EXPECT_GE(mine, 0.98 * best_goodput(w, 2, horizon)) << "MTBF " << w.mtbf << ", believed " << wrong;
      EXPECT_NEAR(1 / tuner.rate().shared(), w.mtbf, 0.3 * w.mtbf);
    }
}

TEST(Interval, GrowsWithTheCostAndWithTheTimeBetweenFailures) {
  const SaveCosts base{1, 1, 0, 0};
  const auto steps = [](SaveCosts c, double mtbf, double most = no_limit) {
    return best_interval(c, 1 / mtbf, most, far).steps;
  };
  std::int64_t before = 0;
  for (double mtbf = 100; mtbf < 1e7; mtbf *= 2) {
    EXPECT_GE(steps(base, mtbf), before);
    before = steps(base, mtbf);
  }
  before = 0;
  for (double stall = 0.01; stall < 100; stall *= 2) {
    EXPECT_GE(steps({1, stall, 0, 0}, 1e5), before);
    before = steps({1, stall, 0, 0}, 1e5);
  }
  EXPECT_GT(steps({1, 0.01, 10, 0.5}, 1e5), steps({1, 0.01, 10, 0.0}, 1e5)) << "slow steps are a cost";
}

TEST(Interval, IsBounded) {
  EXPECT_EQ(best_interval({1, 0, 30.5, 0}, 1e-3, no_limit, far).steps, 31)
      << "a save is durable before the next one begins";
  EXPECT_EQ(best_interval({1, 0, 0, 0}, 1e-3, no_limit, far).steps, 1) << "what costs nothing";
  EXPECT_EQ(best_interval({1, 10, 0, 0}, 1e-9, no_limit, 500).steps, 500) << "not beyond the run";
  for (const double most : {0.001, 0.01, 0.03, 0.1}) {
    const Interval limited = best_interval({0.5, 2, 0, 0}, 1e-2, most, far);
    EXPECT_LE(limited.overhead, most * 1.0001);
    EXPECT_GE(limited.overhead, most * 0.9) << "and not more than needed, when failures ask for more";
  }
  EXPECT_GE(best_interval({1e-6, 1, 1e9, 1}, 1e-12, 1e-9, 77).steps, 1);
  EXPECT_LE(best_interval({1e-6, 1, 1e9, 1}, 1e-12, 1e-9, 77).steps, 77);
}

TEST(Interval, ALevelOfPeersLeavesRarerFailuresToTheSharedOne) {
  const FailureRate all(3600), beyond(3600, share_beyond_peers);
  EXPECT_NEAR(beyond.shared() / all.shared(), share_beyond_peers, 1e-12);
  const SaveCosts costs{1, 0.5, 1, 0};
  const double ratio = static_cast<double>(best_interval(costs, beyond.shared(), no_limit, far).steps) /
                       static_cast<double>(best_interval(costs, all.shared(), no_limit, far).steps);
  EXPECT_NEAR(ratio, std::sqrt(1 / share_beyond_peers), 0.1);
}

TEST(Interval, WhatWasSeenOutweighsWhatWasBelieved) {
  FailureRate rate(1000);
  EXPECT_DOUBLE_EQ(rate.shared(), 1e-3);
  rate.lived(1e6);
  EXPECT_NEAR(rate.shared(), 1e-6, 1e-8) << "a long time without any";
  rate.failed(999);
  EXPECT_NEAR(rate.shared(), 1e-3, 1e-5);
}

config::Checkpoint settings(int every, config::Interval interval = config::Interval::fixed,
                            config::WhenBusy busy = config::WhenBusy::wait) {
  config::Checkpoint c;
  c.every = every;
  c.interval = interval;
  c.when_busy = busy;
  return c;
}

/// Steps of 1 to 12 after which a save was ordered and begun.
std::vector<std::int64_t> saves(SavePolicy& policy, bool busy = false) {
  std::vector<std::int64_t> out;
  for (std::int64_t step = 1; step <= 12; ++step)
    if (policy.orders(step, busy).save) out.push_back(step), policy.begun(step);
  return out;
}

TEST(SavePolicy, SavesEverySoManyStepsAndAtTheEnd) {
  const FailureRate rate(1e6);
  SavePolicy every5(settings(5), 12, 0, rate), at_the_end(settings(0), 12, 0, rate),
      not_yet(settings(5), 100, 0, rate);
  EXPECT_THAT(saves(every5), ::testing::ElementsAre(5, 10, 12));
  EXPECT_THAT(saves(at_the_end), ::testing::ElementsAre(12));
  EXPECT_THAT(saves(not_yet), ::testing::ElementsAre(5, 10));
}

TEST(SavePolicy, SkipsWhatMayBeSkippedAndCountsIt) {
  SavePolicy policy(settings(5, config::Interval::fixed, config::WhenBusy::skip), 12, 0, FailureRate(1e6));
  EXPECT_THAT(saves(policy, true), ::testing::ElementsAre(12)) << "the last one must be";
  EXPECT_EQ(policy.in_metrics({}).skipped, 2);
}

TEST(SavePolicy, ADrainSavesOnceAndStopsWhereItWasAskedTo) {
  SavePolicy policy(settings(0), 100, 0, FailureRate(1e6));
  policy.drain({false, "the batch host was lost"});
  StepOrders orders = policy.orders(3, true);
  EXPECT_TRUE(orders.save && orders.must && !orders.stop);
  orders = policy.orders(4, true);  // step 3 was skipped by the guard: nothing began
  EXPECT_TRUE(orders.save);
  policy.begun(4);
  EXPECT_FALSE(policy.orders(5, true).save);
  policy.drain({true, "60 s before the time limit"});
  policy.drain({false, "the batch host was lost"});
  orders = policy.orders(6, true);
  EXPECT_TRUE(orders.save && orders.must && orders.stop);
  EXPECT_EQ(orders.reason_text(), "60 s before the time limit");
}

TEST(SavePolicy, ARunThatIsDoneIsNotStopped) {
  SavePolicy policy(settings(0), 7, 0, FailureRate(1e6));
  policy.drain({true, "SIGTERM"});
  const StepOrders orders = policy.orders(7, false);
  EXPECT_TRUE(orders.save && !orders.stop);
}

TEST(SavePolicy, PlansAgainAtEverySave) {
  SavePolicy policy(settings(10, config::Interval::automatic), 100000, 0, FailureRate(3600));
  SaveTotals totals;
  std::int64_t saved = 0;
  for (std::int64_t step = 1; step <= 2000; ++step) {
    if (policy.orders(step, false).save) {
      EXPECT_TRUE(saved > 0 || step == 10) << "the first guess is the setting: " << step;
      policy.begun(step);
      ++totals.begun;
      totals.stall_s += 0.5;
      saved = step;
    }
    const bool changed = policy.measured(0.1, totals);
    EXPECT_TRUE(!changed || policy.every() != 10);
    if (step == saved + 3 && totals.settled < totals.begun) {
      totals.settled = totals.begun;
      totals.persist_s = 0.25;
    }
  }
  EXPECT_NEAR(static_cast<double>(policy.every()), std::sqrt(2 * 0.5 * 3600) / 0.1, 0.1 * 600);
  EXPECT_THAT(policy.tuner().text(), HasSubstr("a save stalls 0.500 s and takes 0.25 s in the background"));
  EXPECT_GT(policy.in_metrics(totals).overhead, 0);
}

TEST(SavePolicy, AFixedIntervalStaysAsItIs) {
  SavePolicy policy(settings(10), 100000, 0, FailureRate(3600));
  SaveTotals totals;
  totals.begun = totals.settled = 1;
  totals.stall_s = 5;
  totals.persist_s = 1;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(policy.measured(0.1, totals));
  EXPECT_EQ(policy.every(), 10);
}

TEST(StepOrders, AReasonThatIsTooLongIsCut) {
  StepOrders orders;
  orders.set_reason(std::string(500, 'x'));
  EXPECT_EQ(orders.reason_text(), std::string(91, 'x'));
  orders.set_reason("short");
  EXPECT_EQ(orders.reason_text(), "short");
}

}  // namespace
}  // namespace holdfast::train
