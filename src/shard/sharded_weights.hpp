#pragma once
// Parameters and gradients of one rank: its slice of every tensor, room for gathered units and for the
// gradient of one leaf, and the accumulators of the canonical sum. The life of a step:
//
//   begin_step()
//   for each micro-step:   begin_micro_step(i)
//     for each unit:       acquire(u), weight(t)..., release(u)            gathered from the shard group
//     where S > 1
//                          gradient(t)..., reduce(u)                      leaves of the group folded into my
//                          slice
//   finish_step()          tree nodes of all replicas added: gradients() is the sum over all leaves
//
// Calls have the meaning of model::Weights; acquire, reduce and finish_step are collective.
#include <cstdint>
#include <span>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/kernels/kernels.hpp"
#include "src/shard/lane_plan.hpp"
#include "src/shard/layout.hpp"
#include "src/tensor/arena.hpp"

namespace holdfast::shard {

class ShardedWeights {
 public:
  /// Plans its memory in `arena`, which the caller commits before anything else is called. All references
  /// must outlive it.
  ShardedWeights(const Layout& layout, const LanePlan& plan, comm::Communicator& shard_group,
                 comm::Communicator& replicas, kernels::Kernels& kernels, tensor::Stream& stream,
                 tensor::Arena& arena);

  /// Arena of Layout::arena_elements: the parameters held here. Change it between steps only.
  float* parameters() { return arena_.at(parameters_); }
  /// Arena of the same shape: after finish_step() the gradient sum of everything held here.
  float* gradients() { return arena_.at(accumulators_); }

  /// Parameters may have changed: what was gathered is forgotten.
  void begin_step();
  void begin_micro_step(int micro_step) { micro_step_ = static_cast<std::size_t>(micro_step); }
  void acquire(int unit);
  const float* weight(int stored);
  void release(int) {}  // the buffer keeps the unit until another needs it
  float* gradient(int stored);
  void reduce(int unit);
  void finish_step();

 private:
  /// Buffers are shared by the blocks; embedding and head have their own, since they live across the others.
  std::size_t buffer_of(int unit) const;
  float* gathered(int unit) { return arena_.at(gathered_[buffer_of(unit)]); }
  float* accumulator(int slot) { return arena_.at(accumulators_) + slot * layout_.arena_elements; }
  std::span<const comm::Extent> extents(int unit, float* buffer);
  /// `additions` on `count` elements; accumulator k is at base + k * stride.
  void add_up(const std::vector<LaneOp>& additions, float* base, std::int64_t stride, std::int64_t count,
              std::span<const float* const> sources);

  const Layout& layout_;
  comm::Communicator& shard_group_;
  comm::Communicator& replicas_;
  kernels::Kernels& kernels_;
  tensor::Stream& stream_;
  tensor::Arena& arena_;

  std::vector<std::vector<LaneOp>> additions_;  // of each micro-step
  std::vector<LaneOp> final_additions_;
  std::vector<int> nodes_of_;  // tree nodes that each replica brings
  std::size_t micro_step_ = 0;

  tensor::Arena::Piece<float> parameters_, accumulators_, merge_scratch_;
  std::vector<tensor::Arena::Piece<float>> gathered_, leaf_;  // embedding, blocks, head
  std::vector<int> resident_;                                 // unit that each gathered buffer holds, or -1
  std::vector<std::vector<int>> stored_of_;                   // stored tensors of each unit
  std::vector<comm::Extent> extents_;
  std::vector<const float*> nodes_;
};

}  // namespace holdfast::shard
