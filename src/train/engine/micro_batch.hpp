#pragma once
// The tokens of one micro-batch, in memory that is taken once.
#include <cstdint>
#include <vector>

#include "src/data/samples.hpp"
#include "src/model/transformer.hpp"

namespace holdfast::train {

/// Each call gives a batch that is valid until the next one.
class MicroBatch {
 public:
  MicroBatch(int micro_batch, int sequence, bool boundaries);

  /// Samples [first, first + micro_batch) of the run.
  model::Batch read(const data::Samples& samples, std::int64_t first);
  /// Windows [first, first + micro_batch) of an evaluation (data::held_out_window); of those from `end` on
  /// nothing counts.
  model::Batch read(const data::TokenFile& file, std::int64_t first, std::int64_t end);
  /// Tokens that stand for any: every one is learned.
  model::Batch blank();

 private:
  data::Row row(int number);
  model::Batch batch(bool boundaries) const;

  int rows_, sequence_;
  bool boundaries_;
  std::vector<std::int32_t> inputs_, labels_, document_start_, sources_;
};

}  // namespace holdfast::train
