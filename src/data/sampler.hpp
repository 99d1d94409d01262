#pragma once
// The order of the windows of one token file: a function of (seed, sample index) alone, never of ranks or
// attempts. Every epoch visits each window once, in its own pseudo-random order. No table: the order is
// computed, so that a restart at any sample costs nothing.
#include <cstdint>
#include <string>

#include "src/data/token_file.hpp"

namespace holdfast::data {

/// A permutation of [0, n) keyed by `key`: a Feistel network over the next power of four, walked until it
/// lands inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). n >= 1, i in [0, n).
std::uint64_t permute(std::uint64_t i, std::uint64_t n, std::uint64_t key);

/// How many windows of `sequence` tokens a file has: its rows when it is packed, else floor((tokens - 1) /
/// sequence), as the last label of a window is the first token of the next one. Throws Error (usage) when
/// there is none, or when its rows have another length.
std::int64_t windows_of(const TokenFile& file, int sequence, const std::string& name = "a token file");

/// The window with which number `i` of an evaluation is computed, of a file with `windows` of them: the same
/// at every evaluation, and from all over the file however few are asked for.
std::int64_t held_out_window(std::int64_t i, std::int64_t windows);

class Sampler {
 public:
  /// `windows` >= 1 of `sequence` tokens each.
  Sampler(std::int64_t windows, int sequence, std::uint64_t shuffle_seed);

  /// First token of a sample. Samples are counted over the whole run, from 0.
  std::int64_t first_token(std::int64_t sample) const;

 private:
  std::int64_t windows_;
  int sequence_;
  std::uint64_t seed_;
};

}  // namespace holdfast::data
