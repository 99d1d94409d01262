// Who slows the others down: ranks that compute late, and nodes behind a slow network; and who must not be
// named.
#include "launcher/supervise/slow_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "src/base/as_size.hpp"

namespace holdfast::launcher {
namespace {

class StragglersTest : public testing::Test {
 protected:
  /// So many steps of 16 ranks at 100 ms, some per cent apart, `slow` of them `times` slower; those that were
  /// named.
  std::vector<int> steps(int count, const std::vector<int>& slow = {}, double times = 1,
                         double noise = 0.05) {
    std::vector<int> named;
    for (int i = 0; i < count; ++i, ++step_) {
      for (int r = 0; r < 16; ++r) {
        const bool is_slow = std::find(slow.begin(), slow.end(), r) != slow.end();
        stragglers_.computed(r, step_, 0.1 * (is_slow ? times : 1) * std::exp(noise * normal_(random_)));
      }
      while (const auto found = stragglers_.take()) {
        named.push_back(found->rank);
        ratio_ = found->ratio;
      }
    }
    return named;
  }
  Stragglers stragglers_{{}, 16};
  std::mt19937 random_{5};
  std::normal_distribution<double> normal_;
  std::int64_t step_ = 0;
  double ratio_ = 0;
};

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST_F(StragglersTest, OneThatIsTwiceAsSlowIsNamedOnceAfterTenSteps) {
  EXPECT_THAT(steps(50), IsEmpty());
  EXPECT_THAT(steps(10, {7}, 2), IsEmpty()) << "not yet";
  EXPECT_THAT(steps(10, {7}, 2), ElementsAre(7));
  EXPECT_NEAR(ratio_, 2, 0.2);
  EXPECT_THAT(steps(200, {7}, 2), IsEmpty()) << "it is known";
  EXPECT_THAT(steps(50), IsEmpty());
  EXPECT_THAT(steps(20, {7}, 2), ElementsAre(7)) << "it had been at ease";
}

TEST_F(StragglersTest, AFewSlowStepsNoiseAndASlownessBelowTheRatioAreNone) {
  EXPECT_THAT(steps(20), IsEmpty());
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(steps(3, {2}, 30), IsEmpty()) << "a burst";
    EXPECT_THAT(steps(20), IsEmpty());
  }
  EXPECT_THAT(steps(200, {4}, 1.3), IsEmpty());
  EXPECT_THAT(steps(2000, {}, 1, 0.5), IsEmpty()) << "all ranks jitter by half";
}

TEST_F(StragglersTest, HalfOfTheWorldMayBeSlow) {
  steps(20);
  EXPECT_THAT(steps(20, {8, 9, 10, 11, 12, 13, 14, 15}, 3),
              UnorderedElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
}

TEST_F(StragglersTest, ARunThatBeginsWithOneKnowsItToo) { EXPECT_THAT(steps(15, {0}, 2.5), ElementsAre(0)); }

TEST_F(StragglersTest, TheSameStepToldAgainAndSilenceSayNothing) {
  steps(20);
  for (int i = 0; i < 100; ++i) stragglers_.computed(3, step_ - 1, 9), stragglers_.computed(4, step_ + i, 0);
  EXPECT_FALSE(stragglers_.take());
}

// --- networks

/// Steps of nodes that exchange messages, as one network's speed shapes what their ranks await.
class Exchanges {
 public:
  explicit Exchanges(int nodes, int ranks_per_node = 1)
      : slow(as_size(nodes), 1), late_ms(as_size(nodes), 0), rpn_(ranks_per_node), nodes_(nodes) {}
  std::vector<double> slow;     ///< by node: times as long as usual for each of its messages
  std::vector<double> late_ms;  ///< by node: it comes so much later to every step than the others
  double usual_ms = 20, step_ms = 100, noise = 0.1;
  /// Times as long as usual for a message between two nodes.
  std::function<double(int, int)> times;  ///< none: as `slow` says
  /// Does a node exchange messages with the other? All do.
  std::function<bool(int, int)> meets = [](int, int) { return true; };

  /// What a rank of `node` has awaited in the next window.
  control::Waits of(int node, std::int64_t step) {
    control::Waits waits{step, us(10 * step_ms), 0, 0, {}};
    std::vector<std::int64_t> all;
    for (int peer = 0; peer < nodes_; ++peer) {
      if (peer == node || !meets(node, peer)) continue;
      const double ms = usual_ms * (times ? times(node, peer) : std::max(slow[node], slow[peer])) *
                            std::exp(noise * normal_(random_)) +
                        std::max(0.0, late_ms[peer] - late_ms[node]);
      waits.longest.push_back({peer * rpn_, us(10 * ms)});
      all.push_back(us(10 * ms));
    }
    std::sort(waits.longest.begin(), waits.longest.end(),
              [](const auto& a, const auto& b) { return a.us > b.us; });
    std::sort(all.begin(), all.end());
    waits.nodes = static_cast<int>(all.size());
    waits.median_us = all[(all.size() - 1) / 2];
    waits.longest.resize(std::min(waits.longest.size(), control::Waits::max_named));
    return waits;
  }

 private:
  static std::int64_t us(double ms) { return std::llround(1000 * ms); }
  int rpn_, nodes_;
  std::mt19937 random_{7};
  std::normal_distribution<double> normal_;
};

class SlowNetworksTest : public testing::Test {
 protected:
  /// So many windows; the slots that were named.
  std::vector<int> windows(int count) {
    std::vector<int> named;
    for (int i = 0; i < count; ++i) {
      step_ += control::Waits::window;
      for (int rank = 0; rank < nodes * ranks_per_node; ++rank)
        networks_.waited(rank, exchanges.of(rank / ranks_per_node, step_));
      while (const auto found = networks_.take([](int) { return false; })) {
        named.push_back(found->slot);
        ratio_ = found->ratio;
      }
    }
    return named;
  }
  void begin(int count, int ranks = 1) {
    nodes = count;
    ranks_per_node = ranks;
    exchanges = Exchanges(count, ranks);
    networks_ = SlowNetworks({}, count, ranks);
    step_ = 0;
  }
  int nodes = 4, ranks_per_node = 1;
  Exchanges exchanges{4};
  SlowNetworks networks_{{}, 4, 1};
  std::int64_t step_ = 0;
  double ratio_ = 0;
};

TEST_F(SlowNetworksTest, ANodeBehindASlowNetworkIsNamedOnceInItsThirdWindow) {
  EXPECT_THAT(windows(10), IsEmpty());
  exchanges.slow[2] = 2;
  EXPECT_THAT(windows(SlowNetworks::windows_in_a_row - 1), IsEmpty()) << "not yet";
  EXPECT_THAT(windows(1), ElementsAre(2));
  EXPECT_NEAR(ratio_, 2, 0.3);
  EXPECT_THAT(windows(50), IsEmpty()) << "it is known";
  exchanges.slow[2] = 1;
  EXPECT_THAT(windows(5), IsEmpty());
  exchanges.slow[2] = 3;
  EXPECT_THAT(windows(5), ElementsAre(2)) << "it had been at ease";
}

TEST_F(SlowNetworksTest, ItIsNamedFromTheBeginningAndInAnyShape) {
  for (const int count : {3, 4, 5, 8, 40})
    for (const int ranks : {1, 2}) {
      begin(count, ranks);
      exchanges.slow[count - 1] = 3;
      EXPECT_THAT(windows(3), ElementsAre(count - 1)) << count << " nodes, " << ranks << " ranks each";
    }
}

TEST_F(SlowNetworksTest, HalfOfTheWorldMayBeBehindOne) {
  begin(40);
  exchanges.slow[5] = exchanges.slow[17] = 3;
  EXPECT_THAT(windows(4), UnorderedElementsAre(5, 17));
}

TEST_F(SlowNetworksTest, AHiccupHoweverLongIsNone) {
  windows(5);
  for (int i = 0; i < 20; ++i) {
    exchanges.slow[1] = 100;
    EXPECT_THAT(windows(SlowNetworks::windows_in_a_row - 1), IsEmpty());
    exchanges.slow[1] = 1;
    EXPECT_THAT(windows(1), IsEmpty());
  }
}

TEST_F(SlowNetworksTest, WhatAllHaveAlikeNamesNobody) {
  windows(5);
  for (auto& times : exchanges.slow) times = 5;
  EXPECT_THAT(windows(20), IsEmpty());
  exchanges.noise = 0.25;
  EXPECT_THAT(windows(2000), IsEmpty()) << "jitter";
}

TEST_F(SlowNetworksTest, ANodeThatComesLateIsNotBehindASlowNetwork) {
  exchanges.late_ms[3] = 80;
  EXPECT_THAT(windows(50), IsEmpty()) << "all await it, and it awaits nobody";
  exchanges.late_ms = {80, 80, 80, 0};
  EXPECT_THAT(windows(50), IsEmpty()) << "one that is early awaits all, and nobody awaits it";
}

TEST_F(SlowNetworksTest, ThePartnerOfASlowNodeIsNot) {
  begin(8);
  // Pairs 0-1, 2-3, ... gather; the even ones meet each other, and so do the odd ones. Node 7 waits for node
  // 6, and the odd ones for node 7.
  exchanges.meets = [](int a, int b) { return a / 2 == b / 2 || a % 2 == b % 2; };
  exchanges.slow[6] = 4;
  exchanges.late_ms[7] = 60;
  EXPECT_THAT(windows(10), ElementsAre(6));
}

TEST_F(SlowNetworksTest, TheThresholds) {
  struct Case {
    const char* what;
    double slow, usual_ms;
    bool named;
  };
  // The ratio is 1.5, and 10 ms of a step of 100 ms are to be lost.
  for (const auto& [what, slow, usual_ms, named] :
       {Case{"below the ratio", 1.45, 40, false}, Case{"above it", 1.55, 40, true},
        Case{"too little of a step", 2, 9.5, false}, Case{"enough of it", 2, 10.5, true}}) {
    begin(6);
    exchanges.noise = 0;
    exchanges.slow[4] = slow;
    exchanges.usual_ms = usual_ms;
    EXPECT_EQ(!windows(5).empty(), named) << what;
  }
  // Nodes that are at some distance from each other anyway: 4 times the usual one is to be passed.
  for (const double far : {12.0, 14.5}) {
    begin(9);
    exchanges.noise = 0;
    exchanges.usual_ms = 4;
    exchanges.times = [far](int a, int b) { return (a == 8 ? far : a + 1) + (b == 8 ? far : b + 1); };
    EXPECT_EQ(!windows(5).empty(), far > 13) << "node 8 is at " << far << ", where the others are at 1 to 8";
  }
}

TEST_F(SlowNetworksTest, TwoNodesAreNotCompared) {
  begin(2);
  exchanges.slow[1] = 10;
  EXPECT_THAT(windows(10), IsEmpty());
}

TEST_F(SlowNetworksTest, AWindowThatIsNotReportedByAllDoesNotCount) {
  exchanges.slow[2] = 3;
  for (int i = 0; i < 10; ++i) {
    step_ += control::Waits::window;
    for (const int rank : {0, 1, 2}) networks_.waited(rank, exchanges.of(rank, step_));
  }
  EXPECT_FALSE(networks_.take([](int) { return false; }));
  EXPECT_THAT(windows(3), ElementsAre(2));
}

// --- all of them

class SlowWatchTest : public testing::Test {
 protected:
  /// A window of steps, in which the ranks of `late` compute three times as long.
  void window(int late = -1) {
    for (int i = 0; i < control::Waits::window; ++i) {
      ++step_;
      for (int rank = 0; rank < 8; ++rank) watch.computed(rank, step_, rank / 2 == late ? 0.3 : 0.1);
    }
    for (int rank = 0; rank < 8; ++rank) watch.waited(rank, exchanges.of(rank / 2, step_));
  }
  Exchanges exchanges{4, 2};
  SlowWatch watch{{}, {"n0", "n1", "n2", "n3", "n4"}, {4, 1, 2, 3}, 2};
  std::int64_t step_ = 0;
};

TEST_F(SlowWatchTest, ANetworkIsNamedByItsNodeWithNumbers) {
  exchanges.slow[0] = 3;
  for (int i = 0; i < 3; ++i) window();
  ASSERT_TRUE(watch.any());
  const auto slow = watch.take();
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->what, "network");
  EXPECT_EQ(slow->node, 4);
  EXPECT_EQ(slow->rank, -1);
  EXPECT_NEAR(slow->ratio, 3, 0.5);
  EXPECT_THAT(slow->evidence, testing::StartsWith("messages to and from n4 are awaited for "));
  EXPECT_FALSE(watch.take());
}

TEST_F(SlowWatchTest, OneThatComputesLateIsNotNamedForItsNetworkToo) {
  exchanges.slow[1] = 3;  // its communication thread is as slow as the rest of it
  for (int i = 0; i < 10; ++i) window(1);
  std::vector<std::string> found;
  while (const auto slow = watch.take()) found.push_back(slow->what + " " + std::to_string(slow->rank));
  EXPECT_THAT(found, UnorderedElementsAre("compute 2", "compute 3"));
  for (int i = 0; i < 4; ++i) window();
  const auto slow = watch.take();
  ASSERT_TRUE(slow) << "its network is slow all the same";
  EXPECT_EQ(slow->what, "network");
}

TEST_F(SlowWatchTest, ALinkIsEvidenceInItselfAndOutlivesAnAttempt) {
  watch.link_slow(2, 50, "mlx5_0 port 1 runs at 200 Gb/s instead of 400");
  watch.new_attempt({1, 2, 3});
  const auto slow = watch.take();
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->what, "link");
  EXPECT_EQ(slow->node, 2);
  EXPECT_EQ(slow->ratio, 2);
  EXPECT_EQ(slow->evidence, "a link of n2 has become slower: mlx5_0 port 1 runs at 200 Gb/s instead of 400");
  EXPECT_FALSE(watch.any());
}

TEST_F(SlowWatchTest, OfAnEarlierAttemptNothingElseCounts) {
  exchanges.slow[0] = 3;
  for (int i = 0; i < 3; ++i) window();
  ASSERT_TRUE(watch.any());
  watch.new_attempt({0, 1, 2, 3});
  EXPECT_FALSE(watch.any());
}

}  // namespace
}  // namespace holdfast::launcher
