#include "src/train/engine/probe.hpp"

#include <gtest/gtest.h>

#include <set>

namespace holdfast::train {
namespace {

TEST(Probe, GivesTheSameBitsAgainAndWithMoreThreads) {
  const auto one = kernels::make_cpu_kernels(1), two = kernels::make_cpu_kernels(2);
  const std::uint64_t first = probe_numerics(*one);
  EXPECT_EQ(probe_numerics(*one), first);
  EXPECT_EQ(probe_numerics(*two), first);
  EXPECT_EQ(probe_line(*one).substr(16, 1), " ");
  EXPECT_EQ(probe_line(*one), probe_line(*two));
}

TEST(Probe, SeesEveryKernel) {
  const auto kernels = kernels::make_cpu_kernels(1);
  std::set<std::uint64_t> sums;
  for (const ProbeSeeds& seeds : {ProbeSeeds{}, ProbeSeeds{.products = 9}, ProbeSeeds{.attention = 9},
                                  ProbeSeeds{.pointwise = 9}, ProbeSeeds{.optimizer = 9}})
    EXPECT_TRUE(sums.insert(probe_numerics(*kernels, seeds)).second);
}

}  // namespace
}  // namespace holdfast::train
