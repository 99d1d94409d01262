#include "src/tools/infer/sampler.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

#include "src/base/error.hpp"

namespace holdfast::infer {
namespace {

using ::testing::ElementsAre;

std::vector<std::int32_t> kept(const std::vector<float>& logits, const Sampling& sampling) {
  std::vector<std::int32_t> out;
  for (const Chance& c : chances_of(logits, sampling)) out.push_back(c.token);
  return out;
}
Sampling with(double temperature, int top_k = 0, double top_p = 1) {
  Sampling s;
  s.temperature = temperature;
  s.top_k = top_k;
  s.top_p = top_p;
  return s;
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  EXPECT_EQ(choose(std::vector<float>{1, 3, -2, 3}, with(0), 0, 0), 1);
  EXPECT_EQ(choose(std::vector<float>{-5}, with(0), 0, 0), 0);
}

TEST(Sampler, LeavesOutWhatTransformersLeavesOut) {
  const std::vector<float> logits = {0, 2, 1, 2, -1};
  EXPECT_THAT(kept(logits, with(1)), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(kept(logits, with(1, 1)), ElementsAre(1, 3)) << "equals of the last stay";
  EXPECT_THAT(kept(logits, with(1, 3)), ElementsAre(1, 2, 3));
  EXPECT_THAT(kept(logits, with(1, 100)), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(kept(logits, with(1, 0, 0)), ElementsAre(1)) << "one stays always";
  // Probabilities 0.05, 0.37, 0.14, 0.37, 0.02 nearly (they sum to one with e^2 = 7.4 ...).
  EXPECT_THAT(kept(logits, with(1, 0, 0.3)), ElementsAre(1));
  EXPECT_THAT(kept(logits, with(1, 0, 0.5)), ElementsAre(1, 3));
  EXPECT_THAT(kept(logits, with(1, 0, 0.8)), ElementsAre(1, 2, 3));
  EXPECT_THAT(kept(logits, with(1, 2, 0.8)), ElementsAre(1, 3)) << "top-k comes first";
  EXPECT_THAT(kept(logits, with(100, 0, 0.5)), ElementsAre(1, 2, 3)) << "and the temperature before both";
}

TEST(Sampler, DrawsAsOftenAsTheModelSays) {
  const std::vector<float> logits = {0, 1, 2, -std::numeric_limits<float>::infinity()};
  const auto chances = chances_of(logits, with(0.7));
  constexpr int draws = 20000;
  std::map<std::int32_t, int> count;
  for (int i = 0; i < draws; ++i) ++count[choose(logits, with(0.7), 5, static_cast<std::uint64_t>(i))];
  EXPECT_EQ(count.count(3), 0u);
  double sum = 0;
  for (const Chance& c : chances) {
    sum += c.probability;
    const double deviation = std::sqrt(draws * c.probability * (1 - c.probability));
    EXPECT_NEAR(count[c.token], draws * c.probability, 5 * deviation + 1e-9);
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_NEAR(chances[2].probability / chances[0].probability, std::exp(2 / 0.7), 1e-6);
}

TEST(Sampler, IsAFunctionOfSeedTextAndPosition) {
  const std::vector<float> flat(1000, 0.0f);
  Sampling sampling = with(1);
  const auto first = choose(flat, sampling, 3, 9);
  EXPECT_EQ(choose(flat, sampling, 3, 9), first);
  EXPECT_NE(choose(flat, sampling, 4, 9), first);
  EXPECT_NE(choose(flat, sampling, 3, 10), first);
  sampling.seed = 2;
  EXPECT_NE(choose(flat, sampling, 3, 9), first);
}

TEST(Sampler, RefusesWhatIsNoNumberOrOutOfRange) {
  const float nan = std::nanf(""), infinite = std::numeric_limits<float>::infinity();
  for (const auto& s : {with(0), with(1), with(1, 1, 0.5)})
    EXPECT_THROW(choose(std::vector<float>{0, nan}, s, 0, 0), Error);
  EXPECT_THROW(choose(std::vector<float>{0, infinite}, with(1), 0, 0), Error);
  EXPECT_THROW(choose(std::vector<float>{-infinite, -infinite}, with(1), 0, 0), Error);
  for (const auto& s :
       {with(-1), with(nan), with(infinite), with(1, -1), with(1, 0, -0.1), with(1, 0, 1.1), with(1, 0, nan)})
    EXPECT_THROW(check(s), Error);
  check(with(0)), check(with(2, 50, 0)), check(with(1e-3, 0, 1));
  EXPECT_EQ(choose(std::vector<float>{1, 2, 1.5}, with(1e-3), 0, 0), 1) << "cold, and no overflow";
}

}  // namespace
}  // namespace holdfast::infer
