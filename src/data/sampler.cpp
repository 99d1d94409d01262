#include "src/data/sampler.hpp"

#include <fmt/core.h>

#include <bit>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"

namespace holdfast::data {

std::uint64_t permute(std::uint64_t i, std::uint64_t n, std::uint64_t key) {
  expects(n >= 1 && i < n, "an index of the permutation");
  constexpr int rounds = 6;
  const int half_bits =
      (std::bit_width(n - 1) + 1) / 2;  // the walk leaves [0, n) at most three times out of four
  const std::uint64_t half = (std::uint64_t{1} << half_bits) - 1;
  do {
    std::uint64_t left = i >> half_bits, right = i & half;
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t scrambled =
          mix64(right + mix64(key + static_cast<std::uint64_t>(round) * 0x9e3779b97f4a7c15u));
      const std::uint64_t next = left ^ (scrambled & half);
      left = right, right = next;
    }
    i = left << half_bits | right;
  } while (i >= n);
  return i;
}

Sampler::Sampler(std::int64_t tokens, int sequence, std::uint64_t shuffle_seed)
    : windows_((tokens - 1) / sequence), sequence_(sequence), seed_(shuffle_seed) {
  expects(sequence > 0, "a sequence length");
  if (tokens < std::int64_t{sequence} + 1)
    throw Error(Exit::usage, fmt::format("the token file is too short for one sample of {} tokens", sequence),
                fmt::format("it holds {} tokens, and a sample needs one more than train.sequence", tokens),
                "Prepare more text, or set train.sequence lower?");
}

std::int64_t Sampler::first_token(std::int64_t sample) const {
  expects(sample >= 0, "a sample of the run");
  const auto n = static_cast<std::uint64_t>(windows_), at = static_cast<std::uint64_t>(sample);
  const std::uint64_t epoch_key = mix64(seed_ + mix64(at / n + 1));
  return static_cast<std::int64_t>(permute(at % n, n, epoch_key)) * sequence_;
}

void read_leaf(const TokenFile& file, const Sampler& sampler, std::int64_t first_sample, int micro_batch,
               std::span<std::int32_t> out) {
  expects(micro_batch > 0 && out.size() % static_cast<std::size_t>(micro_batch) == 0, "rows of equal length");
  const std::size_t row = out.size() / static_cast<std::size_t>(micro_batch);
  for (int b = 0; b < micro_batch; ++b)
    file.copy(sampler.first_token(first_sample + b), out.subspan(static_cast<std::size_t>(b) * row, row));
}

}  // namespace holdfast::data
