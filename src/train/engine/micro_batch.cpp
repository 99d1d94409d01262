#include "src/train/engine/micro_batch.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"

namespace holdfast::train {

MicroBatch::MicroBatch(int micro_batch, int sequence, bool boundaries)
    : rows_(micro_batch), sequence_(sequence), boundaries_(boundaries) {
  const auto n = as_size(micro_batch) * as_size(sequence);
  for (auto* part : {&inputs_, &labels_, &document_start_}) part->resize(n);
  sources_.resize(as_size(micro_batch));
}

model::Batch MicroBatch::read(const data::Samples& samples, std::int64_t first) {
  for (int r = 0; r < rows_; ++r) sources_[as_size(r)] = samples.read(first + r, row(r));
  model::Batch out = batch(samples.has_boundaries());
  out.first_sample = first;
  out.sources = sources_;
  return out;
}

model::Batch MicroBatch::read(const data::TokenFile& file, std::int64_t first, std::int64_t end) {
  const std::int64_t windows = data::windows_of(file, sequence_);
  for (int r = 0; r < rows_; ++r) {
    const data::Row to = row(r);
    if (first + r < end) {
      data::read_window(file, data::held_out_window(first + r, windows) * sequence_, boundaries_, to);
    } else {
      for (const auto part : {to.inputs, to.document_start}) std::ranges::fill(part, 0);
      std::ranges::fill(to.labels, -1);
    }
  }
  return batch(boundaries_ && file.documents() > 1);
}

model::Batch MicroBatch::blank() {
  for (auto* part : {&inputs_, &labels_, &document_start_}) std::ranges::fill(*part, 0);
  return batch(false);
}

data::Row MicroBatch::row(int number) {
  const auto n = as_size(sequence_), at = as_size(number) * n;
  const auto part = [&](std::vector<std::int32_t>& all) { return std::span(all).subspan(at, n); };
  return {part(inputs_), part(labels_), part(document_start_)};
}

model::Batch MicroBatch::batch(bool boundaries) const {
  if (!boundaries) return {inputs_, labels_, {}, 0};
  return {inputs_, labels_, document_start_, 0};
}

}  // namespace holdfast::train
