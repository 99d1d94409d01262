#include "src/data/samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"

namespace holdfast::data {

void read_window(const TokenFile& file, std::int64_t first, bool boundaries, const Row& row) {
  const std::size_t n = row.inputs.size();
  expects(n > 0 && row.labels.size() == n && row.document_start.size() == n, "a row has three equal parts");
  const bool follows = file.row() == 0;  // the last label is the next window's first token
  file.copy(first, row.inputs);
  std::copy(row.inputs.begin() + 1, row.inputs.end(), row.labels.begin());
  if (follows)
    file.copy(first + static_cast<std::int64_t>(n), row.labels.last(1));
  else
    row.labels[n - 1] = -1;
  if (file.header().masked) {
    const std::size_t labels = follows ? n : n - 1;
    const auto learned = file.learned(first + 1, static_cast<std::int64_t>(labels));
    for (std::size_t i = 0; i < labels; ++i)
      if (!learned[i]) row.labels[i] = -1;
  }
  if (!boundaries || file.documents() < 2) {
    std::ranges::fill(row.document_start, 0);
    return;
  }
  file.document_starts(first, row.document_start);
  for (std::size_t i = 0; i + 1 < n; ++i)
    if (row.document_start[i + 1] == static_cast<std::int32_t>(i + 1)) row.labels[i] = -1;
  if (follows) {
    // The token behind the window: a document begins there when its start is its own place.
    std::int32_t behind[2];
    file.document_starts(first + static_cast<std::int64_t>(n) - 1, behind);
    if (behind[1] == 1) row.labels[n - 1] = -1;
  }
}

std::vector<int> quotas_of(const std::vector<double>& weights) {
  expects(!weights.empty() && weights.size() <= Samples::block, "no more sources than samples in a block");
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int> out;
  std::vector<std::pair<double, std::size_t>> remainders;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i] / sum * Samples::block;
    out.push_back(std::max(1, static_cast<int>(share)));
    remainders.push_back({out.back() - share, i});  // who lacks most comes first
  }
  std::sort(remainders.begin(), remainders.end());
  int left = Samples::block - std::accumulate(out.begin(), out.end(), 0);
  for (std::size_t i = 0; left > 0; i = (i + 1) % out.size(), --left) ++out[remainders[i].second];
  // Sources that were raised to one sample are paid for by the largest.
  for (; left < 0; ++left) --*std::max_element(out.begin(), out.end());
  return out;
}

Samples::Samples(std::vector<Source> sources, int sequence, std::uint64_t seed, bool boundaries)
    : sources_(std::move(sources)), seed_(seed), boundaries_(boundaries) {
  std::vector<double> weights;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const TokenFile& file = sources_[i].file;
    // Each source has an order of its own; the first one's is that of a run without a mixture.
    samplers_.emplace_back(windows_of(file, sequence), sequence, i == 0 ? seed : mix64(seed + i));
    weights.push_back(sources_[i].weight);
    has_boundaries_ |= boundaries && file.documents() > 1;
  }
  quotas_ = quotas_of(weights);
}

std::string Samples::identity() const {
  std::string out;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (i > 0) out += " + ";
    if (sources_.size() > 1) out += fmt::format("{}/{} ", quotas_[i], block);
    out += sources_[i].file.identity();
  }
  return fmt::format("{}{} seed {}", out, boundaries_ ? "" : " without boundaries", seed_);
}

Samples::Place Samples::place(std::int64_t sample) const {
  expects(sample >= 0, "a sample of the run");
  if (sources_.size() == 1) return {0, samplers_.front().first_token(sample)};
  const std::int64_t number = sample / block;
  const std::uint64_t key = mix64(seed_ ^ mix64(static_cast<std::uint64_t>(number) + 1));
  auto at = static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(sample % block), block, key));
  std::size_t source = 0;
  for (; at >= quotas_[source]; ++source) at -= quotas_[source];
  return {source, samplers_[source].first_token(number * quotas_[source] + at)};
}

int Samples::read(std::int64_t sample, const Row& row) const {
  const Place p = place(sample);
  read_window(sources_[p.source].file, p.first_token, boundaries_, row);
  return static_cast<int>(p.source);
}

}  // namespace holdfast::data
