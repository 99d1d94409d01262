#pragma once
// The order of training samples: a function of (seed, global sample index) alone, never of ranks or attempts.
// The token stream is cut into windows; every epoch visits each window once, in its own pseudo-random order.
// No table: the order is computed, so that a restart at any sample costs nothing.
#include <cstdint>
#include <span>

#include "src/data/token_file.hpp"

namespace holdfast::data {

/// A permutation of [0, n) keyed by `key`: a Feistel network over the next power of four, walked until it
/// lands inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). n >= 1, i in [0, n).
std::uint64_t permute(std::uint64_t i, std::uint64_t n, std::uint64_t key);

class Sampler {
 public:
  /// `tokens` in the file, `sequence` tokens per sample. Throws Error (usage) when there is not one whole
  /// window.
  Sampler(std::int64_t tokens, int sequence, std::uint64_t shuffle_seed);

  /// Windows of an epoch: floor((tokens - 1) / sequence); window w is tokens [w * sequence, (w + 1) *
  /// sequence], the last of them only as a label.
  std::int64_t windows() const { return windows_; }
  /// First token of a sample. Samples are counted over the whole run, from 0.
  std::int64_t first_token(std::int64_t sample) const;

 private:
  std::int64_t windows_;
  int sequence_;
  std::uint64_t seed_;
};

/// The leaf that begins with global sample `first_sample`: `micro_batch` rows of sequence + 1 tokens into
/// `out`.
void read_leaf(const TokenFile& file, const Sampler& sampler, std::int64_t first_sample, int micro_batch,
               std::span<std::int32_t> out);

}  // namespace holdfast::data
