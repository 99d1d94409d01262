#include "src/tensor/exact_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace holdfast::tensor {
namespace {

std::vector<float> values(std::size_t n) {
  std::mt19937_64 generator(1);
  std::vector<float> out;
  for (std::size_t i = 0; i < n; ++i) {  // 60 binades, both signs
    const double size = std::ldexp(1.0 + 1e-4 * static_cast<double>(generator() % 10000),
                                   static_cast<int>(generator() % 60) - 35);
    out.push_back(static_cast<float>(generator() % 2 == 0 ? size : -size));
  }
  return out;
}

TEST(ExactSum, DoesNotDependOnOrderOrCuts) {
  auto x = values(5003);
  ExactSum sum;
  for (const float v : x) sum.add_square(v);
  for (const std::size_t cut : {1u, 63u, 2500u}) {
    ExactSum left, right;
    for (std::size_t i = 0; i < x.size(); ++i) (i < cut ? left : right).add_square(x[i]);
    right.add(left);
    EXPECT_EQ(right, sum);
  }
  std::sort(x.begin(), x.end());
  ExactSum sorted;
  for (const float v : x) sorted.add_square(v);
  EXPECT_EQ(sorted, sum);
  long double want = 0;
  for (const float v : x) want += static_cast<long double>(v) * v;
  EXPECT_NEAR(sum.value() / static_cast<double>(want), 1.0, 1e-14);
}

TEST(ExactSum, WordsAddAcrossRanks) {
  const auto x = values(4000);
  ExactSum whole;
  ExactSum::Words words{};
  for (std::size_t rank = 0; rank < 40; ++rank) {
    ExactSum mine;
    for (std::size_t i = rank * 100; i < (rank + 1) * 100; ++i)
      mine.add_square(x[i]), mine.add(std::fabs(x[i]));
    whole.add(mine);
    EXPECT_EQ(ExactSum::from_words(mine.words()), mine);
    for (std::size_t w = 0; w < words.size(); ++w) words[w] += mine.words()[w];
  }
  EXPECT_EQ(ExactSum::from_words(words), whole);
  EXPECT_EQ(ExactSum::from_words(words).value(), whole.value());
}

TEST(ExactSum, LimbsOfManyLargeRanksDoNotOverflow) {
  ExactSum large;
  for (int i = 0; i < 3; ++i) large.add(0x1.fffffffffffffp61);
  ExactSum::Words words{};
  for (int rank = 0; rank < 65536; ++rank)
    for (std::size_t w = 0; w < words.size(); ++w) words[w] += large.words()[w];
  EXPECT_EQ(ExactSum::from_words(words).value(), 65536 * large.value());
}

TEST(ExactSum, EveryBinadeIsExact) {
  for (int e = -79; e < 62; ++e) {
    ExactSum sum;
    sum.add(std::ldexp(1.0, e));
    EXPECT_EQ(sum.value(), std::ldexp(1.0, e)) << e;
    EXPECT_EQ(ExactSum::from_words(sum.words()).value(), std::ldexp(1.0, e)) << e;
  }
  for (int e = -39; e < 30; ++e) {
    ExactSum sum;
    sum.add_square(-std::ldexp(1.5f, e));
    EXPECT_EQ(sum.value(), std::ldexp(2.25, 2 * e)) << e;
  }
  ExactSum tiny;
  tiny.add_square(1e-20f), tiny.add_square(-0.0f), tiny.add_square(1e-42f), tiny.add(1e-300), tiny.add(0.0);
  EXPECT_EQ(tiny, ExactSum());
}

TEST(ExactSum, TakesTermsSummedUpAsIntegers) {
  for (int shift = 0; shift < 128; ++shift)
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{5}, (std::int64_t{1} << 62) + 12345}) {
      ExactSum sum;
      sum.add_units(count, shift);
      sum.add_units(-count + 1, shift);  // a negative one that the other makes up for
      ExactSum want;
      want.add_units(1, shift);
      EXPECT_EQ(sum, want) << shift;
      EXPECT_EQ(want.value(), std::ldexp(1.0, shift - 80)) << shift;
    }
}

TEST(ExactSum, NaNAndOverflowSurviveAnAllReduce) {
  ExactSum bad, large, fine;
  bad.add_square(NAN);
  large.add_square(1e30f);
  fine.add(3.0);
  auto reduced = [](const ExactSum& a, const ExactSum& b) {
    auto words = a.words();
    for (std::size_t w = 0; w < words.size(); ++w) words[w] += b.words()[w];
    return ExactSum::from_words(words);
  };
  EXPECT_TRUE(std::isnan(reduced(bad, fine).value()));
  EXPECT_TRUE(std::isinf(reduced(fine, large).value()));
  EXPECT_TRUE(std::isnan(reduced(bad, large).value()));
  EXPECT_EQ(reduced(fine, fine).value(), 6.0);
  for (const double x : {HUGE_VAL, 0x1p62}) {
    ExactSum sum;
    sum.add(x);
    EXPECT_TRUE(sum.has_overflow()) << x;
  }
  ExactSum infinite, negative, total;
  infinite.add_square(-INFINITY);
  EXPECT_TRUE(infinite.has_overflow());
  negative.add(-1.0);
  EXPECT_TRUE(negative.has_nan());
  for (int i = 0; i < 5; ++i) total.add(0x1.fp61);  // each term fits, the rank's sum does not
  EXPECT_TRUE(ExactSum::from_words(total.words()).has_overflow());
}

}  // namespace
}  // namespace holdfast::tensor
