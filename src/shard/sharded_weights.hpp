#pragma once
// Parameters and gradients of one rank, whatever the strategy. The life of a run:
//
//   fill parameters(); publish()                                       after a load, too
//   for each step:           begin_step()                              first gathers start
//     for each micro-step:   begin_micro_step(i, apart)
//       for each unit:       acquire(u), weight(t)..., release(u)      gathers of later units run beside it
//                            gradient(t)..., reduce(u)                 reductions run beside the units below
//     finish_step()          gradients() is the sum over all micro-batches of the step
//     the optimizer changes parameters(); publish()
//   between steps:           begin_evaluation(), then one forward pass
//   after finish_step():     begin_micro_batch(), then one micro-batch whose gradients nobody reduces
//
// Calls have the meaning of model::Weights. All but weight() and gradient() are collective; they wait only
// for what they need, and errors of operations in flight are thrown by whoever waits for them.
#include "src/shard/gathered_units.hpp"
#include "src/shard/gradient_sums.hpp"

namespace holdfast::shard {

class ShardedWeights {
 public:
  /// Plans its memory (memory_plan) in both arenas, which the caller commits before anything else is called.
  ShardedWeights(const Layout& layout, const LanePlan& lanes, const Policy& policy,
                 const Resources& resources);

  /// Optimizer arena: fp32 master parameters. Change it between steps only, or move it (Resources), then
  /// publish().
  float* parameters() { return units_.parameters(); }
  /// What is not trained, see FrozenPlan.
  std::byte* frozen() { return units_.frozen(); }
  /// Optimizer arena: after finish_step() the gradient sum of everything the optimizer updates here.
  float* gradients() { return sums_.sums(); }

  /// Parameters have changed.
  void publish() { units_.publish(); }
  void begin_step() { units_.begin_step(); }
  /// `apart`: gradients of this micro-batch are wanted for themselves, between gradient() and reduce().
  void begin_micro_step(int micro_step, bool apart = false) { sums_.begin_micro_step(micro_step, apart); }
  void begin_evaluation() { units_.begin_evaluation(); }
  void begin_micro_batch() {
    units_.begin_micro_batch();
    sums_.begin_micro_batch();
  }

  void acquire(int unit) { units_.acquire(unit); }
  /// Whole stored tensor, row-major, of the policy's parameter type.
  const void* weight(int stored) { return units_.weight(stored); }
  void release(int unit) { units_.release(unit); }
  /// Null: it is frozen.
  float* gradient(int stored) { return sums_.gradient(stored); }
  bool adds(int stored) const { return sums_.adds(stored); }
  DType gradient_type(int stored) const { return sums_.gradient_type(stored); }
  void reduce(int unit) { sums_.reduce(unit); }
  void finish_step() { sums_.finish(); }

 private:
  ShardedWeights(const Layout& layout, const LanePlan& lanes, const Policy& policy, const MemoryPlan& memory,
                 const Resources& resources);

  GatheredUnits units_;
  GradientSums sums_;
};

}  // namespace holdfast::shard
