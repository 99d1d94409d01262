#pragma once
// Parameters on their way from the optimizer to the model: the fp32 master, what replicas tell each other of
// it, and whole units in gather buffers, gathered ahead of their use as the schedule says.
//
//   S > 1            master -> own slice, converted into the buffer -> all-gather in the shard group
//   S = 1, fp32      the model reads the master itself
//   S = 1, bf16      master -> published, converted once per step; the model reads that
//   frozen           kept as it was loaded; gathered from there, or read where it lies
//   frozen, coded    decoded into the buffer on the way to the gather, also where S = 1
//   HFSDP, R > 1     master (1/R of the slice) -> published -> all-gather among replicas: the whole slice, in
//                    the parameter type; from there as above
#include <span>
#include <vector>

#include "src/shard/frozen_plan.hpp"
#include "src/shard/layout.hpp"
#include "src/shard/memory_plan.hpp"
#include "src/shard/policy.hpp"
#include "src/shard/resources.hpp"
#include "src/shard/schedule.hpp"

namespace holdfast::shard {

class GatheredUnits {
 public:
  /// Plans its memory. `micro_steps`: of this replica.
  GatheredUnits(const Layout& layout, const Policy& policy, const MemoryPlan& memory, int micro_steps,
                const Resources& resources);

  float* parameters() { return parameters_arena_.at(parameters_); }
  /// Frozen arena, see FrozenPlan. Filled once.
  std::byte* frozen() { return r_.own.at(frozen_); }
  /// Collective among replicas (HFSDP).
  void publish();
  /// Forgets what was gathered and starts the first gathers.
  void begin_step() { begin(step_); }
  void begin_evaluation() { begin(evaluation_); }
  /// One micro-batch alone, beside the step's.
  void begin_micro_batch() { begin(micro_batch_); }
  void acquire(int unit);
  void release(int unit);
  const void* weight(int stored);

 private:
  using Bytes = tensor::Arena::Piece<std::byte>;
  struct GatherBuffer {
    Bytes memory;
    int unit = -1;
    bool in_use = false;
    tensor::Event ready = {};
  };
  /// Units are made whole in gather buffers; else they are read where they lie.
  bool shares() const { return !buffers_.empty(); }
  void begin(const Schedule& schedule);
  /// Enqueues what the schedule has for this moment.
  void prefetch(int use);
  void gather(int unit, int buffer);
  std::byte* published(std::int64_t elements) {
    return published_arena_.at(published_) + elements * tensor::bytes_of(policy_.parameters);
  }
  /// This member's slice as it lies on this rank, and its type.
  std::pair<const std::byte*, DType> mine(int stored);
  /// The same, in the parameter type, to `to`.
  void bring_mine(std::byte* to, int stored);
  const StoredSlice& slice(int stored) const { return layout_.slices[stored]; }
  std::span<const int> stored_of(int unit) const { return layout_.unit_stored[unit]; }

  const Layout& layout_;
  const Policy policy_;
  const Resources r_;
  const FrozenPlan frozen_plan_;
  tensor::Arena &parameters_arena_, &published_arena_;
  Schedule step_, evaluation_, micro_batch_;

  tensor::Arena::Piece<float> parameters_;
  Bytes published_, frozen_;
  bool publishes_ = false;
  std::vector<GatherBuffer> buffers_;
  std::vector<int> buffer_of_;               // by unit, of its latest acquire; -1: none
  std::vector<tensor::Event> published_by_;  // by unit: its slice is whole
  // Per unit, so that each outlives its operation: a unit has at most one of each in flight.
  std::vector<std::vector<comm::Extent>> gather_extents_, publish_extents_;

  const Schedule* schedule_ = nullptr;
  int use_ = -1;                 // the latest acquire
  std::size_t next_gather_ = 0;  // of schedule_->gathers
};

}  // namespace holdfast::shard
