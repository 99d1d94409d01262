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
      left = right;
      right = next;
    }
    i = left << half_bits | right;
  } while (i >= n);
  return i;
}

std::int64_t windows_of(const TokenFile& file, int sequence, const std::string& name) {
  expects(sequence > 0, "a sequence length");
  if (file.row() != 0 && file.row() != sequence)
    throw Error(Exit::usage, name + " was packed for another train.sequence",
                fmt::format("its rows have {} tokens, train.sequence is {}", file.row(), sequence),
                fmt::format("Set train.sequence = {}, or prepare it with --pack {}?", file.row(), sequence));
  const std::int64_t windows = (file.row() != 0 ? file.size() : file.size() - 1) / sequence;
  if (windows < 1)
    throw Error(
        Exit::usage, fmt::format("{} is too short for one sample of {} tokens", name, sequence),
        fmt::format("it holds {} tokens, and {} are needed", file.size(), sequence + (file.row() == 0)),
        "Prepare more text, or set train.sequence lower?");
  return windows;
}

std::int64_t held_out_window(std::int64_t i, std::int64_t windows) {
  constexpr std::uint64_t key = 0x68656c64206f7574;  // "held out"
  return static_cast<std::int64_t>(
      permute(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(windows), key));
}

Sampler::Sampler(std::int64_t windows, int sequence, std::uint64_t shuffle_seed)
    : windows_(windows), sequence_(sequence), seed_(shuffle_seed) {
  expects(windows > 0 && sequence > 0, "a window, and its length");
}

std::int64_t Sampler::first_token(std::int64_t sample) const {
  expects(sample >= 0, "a sample of the run");
  const auto n = static_cast<std::uint64_t>(windows_), at = static_cast<std::uint64_t>(sample);
  const std::uint64_t epoch_key = mix64(seed_ + mix64(at / n + 1));
  return static_cast<std::int64_t>(permute(at % n, n, epoch_key)) * sequence_;
}

}  // namespace holdfast::data
