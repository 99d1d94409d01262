#include "src/tools/infer/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/tensor/philox.hpp"

namespace holdfast::infer {

namespace {

void refuse_nan(std::span<const float> logits) {
  const auto nan = std::ranges::find_if(logits, [](float x) { return std::isnan(x); });
  if (nan != logits.end())
    throw Error(Exit::runtime, "the model computes no numbers",
                fmt::format("the logit of token {} is NaN", nan - logits.begin()),
                "Did its training diverge? holdfast ckpt verify says whether the file is sound");
}

/// In [0, 1), 53 bits.
double uniform(std::uint64_t seed, std::uint64_t number, std::uint64_t position) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto words =
      tensor::philox({low(position), high(position), low(number), high(number)}, {low(seed), high(seed)});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

/// Of the `top_k` largest the smallest.
float least_of_top(std::span<const float> logits, int top_k) {
  std::vector<float> sorted(logits.begin(), logits.end());
  const auto kth = sorted.begin() + (top_k - 1);
  std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
  return *kth;
}

}  // namespace

void check(const Sampling& s) {
  if (!(s.temperature >= 0 && s.temperature <= 1e6))
    throw Error(Exit::usage, fmt::format("the temperature is {}, not a number from 0 to 1e6", s.temperature));
  if (s.top_k < 0) throw Error(Exit::usage, fmt::format("top-k is {}, below 0", s.top_k));
  if (!(s.top_p >= 0 && s.top_p <= 1))
    throw Error(Exit::usage, fmt::format("top-p is {}, not a number from 0 to 1", s.top_p));
}

std::vector<Chance> chances_of(std::span<const float> logits, const Sampling& s) {
  expects(!logits.empty() && s.temperature > 0, "there is something to draw");
  refuse_nan(logits);
  const double top = *std::ranges::max_element(logits);
  if (std::isinf(top))
    throw Error(Exit::runtime, "the model computes no numbers", "its largest logit is infinite");
  const float least =
      s.top_k > 0 && as_size(s.top_k) < logits.size() ? least_of_top(logits, s.top_k) : -INFINITY;
  std::vector<Chance> out;
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < least) continue;
    out.push_back({static_cast<std::int32_t>(i), std::exp((logits[i] - top) / s.temperature)});
    sum += out.back().probability;
  }
  if (s.top_p < 1) {
    // The largest first, of equal ones the first; what comes before a token decides whether it stays.
    std::ranges::stable_sort(out, std::greater<>(), &Chance::probability);
    double before = 0;
    std::size_t kept = 0;
    while (kept < out.size() && (kept == 0 || before < s.top_p * sum)) before += out[kept++].probability;
    out.resize(kept);
    sum = before;
    std::ranges::sort(out, {}, &Chance::token);
  }
  for (Chance& c : out) c.probability /= sum;
  return out;
}

std::int32_t choose(std::span<const float> logits, const Sampling& s, std::uint64_t number,
                    std::uint64_t position) {
  if (s.temperature == 0) {
    refuse_nan(logits);
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  const auto chances = chances_of(logits, s);
  double left = uniform(s.seed, number, position);
  for (const Chance& c : chances) {
    left -= c.probability;
    if (left < 0) return c.token;
  }
  // The probabilities' sum was rounded down: the last token that can come at all.
  const auto last =
      std::find_if(chances.rbegin(), chances.rend(), [](const Chance& c) { return c.probability > 0; });
  return last->token;
}

}  // namespace holdfast::infer
