#pragma once
// The state of a run as checkpoints see it: three families of logical tensors (parameters, first and second
// moments) over the arenas of this rank.
#include "checkpoint/state.hpp"
#include "src/config/model_shape.hpp"
#include "src/shard/layout.hpp"

namespace holdfast::train {

struct StateViews {
  checkpoint::State held;            ///< all that this rank has: filled by a load
  checkpoint::State owned;           ///< what it alone answers for: digested and written
  checkpoint::WriterLayout writers;  ///< what every rank writes
};

/// The three arenas have the shape of `layout` and outlive the views.
StateViews views_of(const config::ModelShape& shape, const shard::Layout& layout, float* parameters,
                    float* exp_avg, float* exp_avg_sq);

}  // namespace holdfast::train
