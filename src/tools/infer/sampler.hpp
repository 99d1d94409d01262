#pragma once
// Which token comes next. Pure.
#include <cstdint>
#include <span>
#include <vector>

namespace holdfast::infer {

/// How a token is drawn, with the order and meaning that these settings have in transformers: logits are
/// divided by the temperature; of those the `top_k` largest stay, and equals of the last; of those as many of
/// the largest as are needed for a probability of at least `top_p`, at least one.
struct Sampling {
  double temperature = 0;  ///< 0: always the token with the largest logit, the first of equal ones
  int top_k = 0;           ///< 0: all
  double top_p = 1;        ///< 1: all
  std::uint64_t seed = 1;
};

/// Throws Error (usage) where a setting is out of range.
void check(const Sampling& sampling);

/// The token at `position` of text `number`: random numbers are a function of these and the seed alone.
/// Throws Error (runtime) when a logit is no number.
std::int32_t choose(std::span<const float> logits, const Sampling& sampling, std::uint64_t number,
                    std::uint64_t position);

/// What token each draw may give, and with which probability (their sum is 1 but for rounding); in the order
/// of ids. temperature > 0.
struct Chance {
  std::int32_t token = 0;
  double probability = 0;
};
std::vector<Chance> chances_of(std::span<const float> logits, const Sampling& sampling);

}  // namespace holdfast::infer
