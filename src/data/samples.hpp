#pragma once
// The samples of a run: which tokens each has, which of them are learned, and where documents begin. A
// function of the token files, their weights, the seed and the sample's number alone.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/data/sampler.hpp"
#include "src/data/token_file.hpp"

namespace holdfast::data {

/// A window of `inputs.size()` tokens. All three have one length.
struct Row {
  std::span<std::int32_t> inputs;
  std::span<std::int32_t> labels;  ///< below 0: nothing is to be learned
  std::span<std::int32_t>
      document_start;  ///< places from the row's begin at which the token's document begins
};

/// The window that begins with token `first`. The label of a token is the next one; it is masked where that
/// one is not learned, is behind a packed row, or, with `boundaries`, belongs to another document. Without
/// `boundaries` a row is one document. Throws Error (usage) when the file is damaged there.
void read_window(const TokenFile& file, std::int64_t first, bool boundaries, const Row& row);

/// A token file and its part of the samples.
struct Source {
  TokenFile file;
  double weight = 1;
};

class Samples {
 public:
  /// Samples come in blocks of this many, in each of which every source has the same number of samples, its
  /// weight rounded, but at least one; their order within the block is pseudo-random.
  static constexpr int block = 4096;

  /// Throws Error (usage) when a source has no window, or there are more sources than a block has samples.
  Samples(std::vector<Source> sources, int sequence, std::uint64_t seed, bool boundaries);

  /// What the samples depend on, for people and for comparison.
  std::string identity() const;
  /// Some row may have more than one document.
  bool has_boundaries() const { return has_boundaries_; }
  int sources() const { return static_cast<int>(sources_.size()); }
  /// `sample` >= 0, counted over the whole run. Returns its source.
  int read(std::int64_t sample, const Row& row) const;

  struct Place {
    std::size_t source = 0;
    std::int64_t first_token = 0;
  };
  Place place(std::int64_t sample) const;

 private:
  std::vector<Source> sources_;
  std::vector<Sampler> samplers_;
  std::vector<int> quotas_;  ///< samples of each source in a block
  std::uint64_t seed_;
  bool boundaries_, has_boundaries_ = false;
};

/// Samples of each weight's source in a block: largest remainders, at least one each. The sum is
/// Samples::block.
std::vector<int> quotas_of(const std::vector<double>& weights);

}  // namespace holdfast::data
