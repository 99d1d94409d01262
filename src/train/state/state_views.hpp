#pragma once
// The state of a run as checkpoints see it: three families of logical tensors (parameters, first and second
// moments) over the arenas of this rank.
#include "checkpoint/index/writer_layout.hpp"
#include "src/config/model_shape.hpp"
#include "src/shard/layout.hpp"

namespace holdfast::train {

struct StateViews {
  checkpoint::State held;            ///< all that this rank has: filled by a load
  checkpoint::State owned;           ///< what it alone answers for: digested and written
  checkpoint::WriterLayout writers;  ///< what every rank writes: `owned` of all of them
};

/// All that the rank of `layout` has, in its three optimizer arenas, wherever they lie: StateViews::held.
checkpoint::State held_of(const config::ModelShape& shape, const shard::Layout& layout, float* parameters,
                          std::byte* exp_avg, std::byte* exp_avg_sq, DType moments);

/// The arenas have moved: `views`, made of the same layout by views_of(), now shows them there. Allocates
/// nothing.
void move_views(StateViews& views, const shard::Layout& layout, float* parameters, std::byte* exp_avg,
                std::byte* exp_avg_sq, DType moments);

/// The three optimizer arenas have the shape of `layout` and outlive the views; the moments are of type
/// `moments`.
StateViews views_of(const config::ModelShape& shape, const shard::Layout& layout, float* parameters,
                    std::byte* exp_avg, std::byte* exp_avg_sq, DType moments);

}  // namespace holdfast::train
