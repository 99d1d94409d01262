// The additions must be the same, whatever the layout: checked with numbers whose sums depend on the order.
#include "src/config/lane_plan.hpp"
#include "src/base/as_size.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using testing::HasSubstr;

constexpr int elements = 20;

/// 44 binades, so that almost every change of order changes the sum.
float gradient(int micro_batch, int element) {
  const std::uint64_t h = mix64(static_cast<std::uint64_t>(micro_batch + 1000 * element) + 17);
  return std::bit_cast<float>(static_cast<std::uint32_t>(h & 0x807fffff) |
                              static_cast<std::uint32_t>(97 + (h >> 40) % 44) << 23);
}

void apply(const Additions& additions, std::vector<float>& stack, const std::vector<float>& terms) {
  EXPECT_EQ(stack.size(), as_size(additions.before));
  EXPECT_EQ(terms.size(), additions.terms.size());
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (additions.terms[i].begins)
      stack.push_back(terms[i]);
    else
      stack.back() += terms[i];
    for (int merges = additions.terms[i].merges; merges > 0; --merges) {
      const float right = stack.back();
      stack.pop_back();
      stack.back() += right;
    }
  }
}

/// The sum as `replicas` groups of `group` ranks compute it; -0 in every micro-batch when `negative_zero`.
float sum_of(const LanePlan& plan, int replicas, int group, int element = 0, bool negative_zero = false) {
  std::vector<float> sums;
  for (int g = 0; g < replicas; ++g) {
    std::vector<float> accumulators;
    int most = 0;
    for (int step = 0; step < plan.micro_steps(g); ++step) {
      std::vector<float> micro_batches;
      for (int m = 0; m < group; ++m)
        micro_batches.push_back(negative_zero ? -0.f : gradient(plan.micro_batch(g, step, m), element));
      apply(plan.additions(g, step), accumulators, micro_batches);
      most = std::max(most, static_cast<int>(accumulators.size()));
    }
    EXPECT_LE(most, plan.accumulators());
    EXPECT_EQ(plan.partial_sums(g).size(), accumulators.size());
    sums.insert(sums.end(), accumulators.begin(), accumulators.end());
  }
  std::vector<float> total;
  apply(plan.final_additions(), total, sums);
  EXPECT_EQ(total.size(), 1u);
  return total[0];
}

TEST(LanePlan, SumIsTheSameForEveryLayout) {
  struct Case {
    int micro_batches, lanes;
  };
  for (const auto [micro_batches, lanes] :
       {Case{8, 8}, Case{24, 24}, Case{48, 8}, Case{48, 6}, Case{120, 5}, Case{360, 12}, Case{360, 15}}) {
    const int few = micro_batches > 100 ? 3 : elements;  // each long sum shows a change of order by itself
    std::vector<float> expected;
    for (int element = 0; element < few; ++element)
      expected.push_back(sum_of(LanePlan(micro_batches, lanes, 1, 1), 1, 1, element));
    int tried = 0;
    for (int replicas = 1; replicas <= lanes; ++replicas)
      for (int group = 1; group <= 8; ++group) {
        try {
          const LanePlan plan(micro_batches, lanes, replicas, group);
          for (int element = 0; element < few; ++element)
            EXPECT_EQ(std::bit_cast<std::uint32_t>(sum_of(plan, replicas, group, element)),
                      std::bit_cast<std::uint32_t>(expected[element]))
                << micro_batches << ' ' << lanes << ' ' << replicas << 'x' << group;
          ++tried;
        } catch (const Error& error) {
          EXPECT_EQ(error.exit(), Exit::usage);
        }
      }
    EXPECT_GE(tried, 8);
  }
}

TEST(LanePlan, OtherLanesGiveOtherSums) {
  int different = 0;
  for (int element = 0; element < elements; ++element)
    different += sum_of(LanePlan(48, 8, 1, 1), 1, 1, element) != sum_of(LanePlan(48, 6, 1, 1), 1, 1, element);
  EXPECT_GT(different, 0);
}

TEST(LanePlan, NegativeZeroStays) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(sum_of(LanePlan(8, 4, 2, 2), 2, 2, 0, true)), 0x80000000u);
}

TEST(LanePlan, EveryMicroBatchIsComputedOnce) {
  const LanePlan plan(48, 8, 2, 3);
  std::vector<int> seen(48);
  for (int g = 0; g < 2; ++g)
    for (int step = 0; step < plan.micro_steps(g); ++step)
      for (int m = 0; m < 3; ++m) ++seen[plan.micro_batch(g, step, m)];
  EXPECT_EQ(seen, std::vector<int>(48, 1));
}

TEST(LanePlan, AccumulatorsAreFewAndOneWhereEveryReplicaIsALane) {
  EXPECT_EQ(LanePlan(64, 8, 8, 1).accumulators(), 1);
  EXPECT_EQ(LanePlan(64, 8, 8, 1).temporaries(), 0);
  EXPECT_EQ(LanePlan(64, 8, 1, 1).accumulators(), 4);  // 1 + log2(8 / 1)
  // A lane for each micro-batch: log2 of the micro-steps, since what a micro-step adds up by itself is not
  // kept.
  EXPECT_EQ(LanePlan(8, 0, 1, 1).accumulators(), 3);
  EXPECT_EQ(LanePlan(992, 0, 124, 8).accumulators(), 1);
  EXPECT_EQ(LanePlan(32, 0, 1, 8).accumulators(), 2);
  EXPECT_EQ(LanePlan(1024, 0, 8, 8).accumulators(), 4);
}

TEST(LanePlan, SumsLieInMemoryOnlyBetweenPasses) {
  EXPECT_EQ(LanePlan(32, 0, 1, 8).temporaries(), 0);
  EXPECT_EQ(LanePlan(32, 0, 1, 8).added_at_once(1000), 0);
  EXPECT_EQ(LanePlan(992, 0, 124, 8).final_temporaries(), 0);
  // 992 terms in four passes: behind the third, 768 lanes are 512 and 256.
  EXPECT_EQ(LanePlan(992, 0, 1, 992).accumulators(), 5);  // 512 + 256 + 128 + 64 + 32
  EXPECT_EQ(LanePlan(992, 0, 1, 992).temporaries(), 0);
  EXPECT_EQ(LanePlan(1024, 0, 1, 1024).accumulators(), 1);
  EXPECT_EQ(LanePlan(1024, 0, 1, 1024).temporaries(), 1);
  EXPECT_EQ(LanePlan(1024, 0, 1, 1024).added_at_once(1000), 1000);
  EXPECT_EQ(LanePlan(1024, 0, 1, 1024).added_at_once(1 << 30), 1 << 22);
  EXPECT_EQ(LanePlan(1024, 0, 1024, 1).final_temporaries(), 2);
  EXPECT_EQ(LanePlan(256, 0, 256, 1).final_temporaries(), 0);
}

TEST(LanePlan, APassEndsBehindItsTermsOrSums) {
  const std::vector<Addition> plain(600), begin(40, {true, 0});
  EXPECT_EQ(pass_of(plain), as_size(terms_of_pass));
  EXPECT_EQ(pass_of(std::span(plain).last(88)), 88u);
  EXPECT_EQ(pass_of(begin), as_size(sums_of_pass) + 1);
  EXPECT_EQ(sums_behind(begin, 2), 42);
  EXPECT_EQ(sums_in_memory(begin, 2), 42);
  EXPECT_EQ(sums_in_memory(plain, 1), 1);
}

TEST(LanePlan, ByDefaultEveryLayoutFitsThatSharesTheMicroBatchesOut) {
  for (const int micro_batches : {1, 8, 12, 30, 64})
    for (int group = 1; group <= micro_batches; ++group)
      for (int replicas = 1; replicas * group <= micro_batches; ++replicas) {
        if (micro_batches % group != 0) continue;
        const LanePlan plan(micro_batches, 0, replicas, group);
        EXPECT_EQ(plan.lanes(), micro_batches) << "not of the layout";
        int computed = 0;
        for (int g = 0; g < replicas; ++g) {
          EXPECT_GE(plan.micro_steps(g), 1);
          computed += plan.micro_steps(g) * group;
        }
        EXPECT_EQ(computed, micro_batches) << replicas << 'x' << group;
      }
}

TEST(LanePlan, ACounterKnowsWhatWasPushed) {
  for (int first = 0; first < 20; ++first) {
    Counter counter;
    for (int end = first; end < 60; ++end) {
      EXPECT_EQ(Counter(first, end).sums(), counter.sums()) << first << ' ' << end;
      counter.push({end, 1});
    }
  }
}

TEST(LanePlan, NodesOfAReplicaAreAlignedPowersOfTwo) {
  const LanePlan plan(5, 5, 2, 1);  // lanes 0,1 | 2,3,4
  EXPECT_EQ(plan.partial_sums(0), (std::vector<PartialSum>{{0, 2}}));
  EXPECT_EQ(plan.partial_sums(1), (std::vector<PartialSum>{{2, 2}, {4, 1}}));
}

TEST(LanePlan, RefusesWhatCannotBeShared) {
  const auto says = [](int micro_batches, int lanes, int replicas, int group) {
    const auto refusal = test::refusal_of([&] { LanePlan(micro_batches, lanes, replicas, group); });
    EXPECT_EQ(refusal.exit, Exit::usage);
    return refusal.text;
  };
  EXPECT_THAT(says(8, 2, 4, 1),
              HasSubstr("too few lanes for the replicas (2 lanes of 4 micro-batches, 4 replicas of 1"));
  EXPECT_THAT(says(12, 4, 3, 2),
              HasSubstr("too few lanes for the replicas (4 lanes of 3 micro-batches, 3 replicas of 2"));
  EXPECT_THAT(
      says(8, 3, 1, 1),
      HasSubstr("not a whole number of lanes (8 micro-batches, 3 lanes). Use train.global_batch = 9?"));
  EXPECT_THAT(
      says(8, 8, 1, 3),
      HasSubstr(
          "(8 micro-batches, groups of 3 ranks; they compute equally many). Use train.global_batch = 9?"));
  EXPECT_THAT(says(1, 0, 2, 1), HasSubstr("fewer micro-batches than ranks (1 micro-batches, 2 ranks"));
}

}  // namespace
}  // namespace holdfast::config
