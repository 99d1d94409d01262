#include "src/data/sampler.hpp"

#include <gtest/gtest.h>

#include <set>

#include "src/base/as_size.hpp"

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

/// A file is its inputs one after the other: few windows have to come from all of them.
TEST(HeldOutWindow, FewComeFromAllOverTheFileAndAllAreEachOnce) {
  constexpr std::int64_t windows = 10'000, few = 64, parts = 8;
  std::set<std::int64_t> all, reached;
  for (std::int64_t i = 0; i < windows; ++i) {
    const std::int64_t window = held_out_window(i, windows);
    EXPECT_TRUE(window >= 0 && window < windows);
    all.insert(window);
    if (i < few) reached.insert(window * parts / windows);
  }
  EXPECT_EQ(all.size(), as_size(windows));
  EXPECT_EQ(reached.size(), as_size(parts));
  EXPECT_EQ(held_out_window(0, 1), 0);
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
