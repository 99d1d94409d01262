#include "src/data/sampler.hpp"

#include <gtest/gtest.h>

#include <set>

namespace holdfast::data {
namespace {

TEST(Permute, IsAPermutationOfEverySize) {
  for (std::uint64_t n : {1u, 2u, 3u, 5u, 16u, 17u, 63u, 64u, 65u, 1000u, 4096u}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < n; ++i) {
      const auto at = permute(i, n, 7);
      ASSERT_LT(at, n);
      seen.insert(at);
    }
    EXPECT_EQ(seen.size(), n);
  }
}

TEST(Sampler, EveryEpochVisitsEveryWindowOnceInItsOwnOrder) {
  const Sampler sampler(100, 16, 3);
  std::vector<std::int64_t> first, second;
  for (std::int64_t i = 0; i < 100; ++i)
    first.push_back(sampler.first_token(i)), second.push_back(sampler.first_token(100 + i));
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set(first.begin(), first.end()), std::set(second.begin(), second.end()));
  for (auto at : first) EXPECT_TRUE(at % 16 == 0 && at <= 99 * 16);
}

TEST(Sampler, OrderIsAFunctionOfSeedAndIndexAlone) {
  const Sampler a(999, 10, 1), b(999, 10, 1), other(999, 10, 2);
  int same = 0;
  for (std::int64_t i = 0; i < 999; ++i) {
    EXPECT_EQ(a.first_token(998 - i), b.first_token(998 - i));
    same += a.first_token(i) == other.first_token(i);
  }
  EXPECT_LT(same, 20);
  // Written down: a change of the order changes every run that resumes.
  EXPECT_EQ(Sampler(100, 10, 1).first_token(0), 260);
}

}  // namespace
}  // namespace holdfast::data
