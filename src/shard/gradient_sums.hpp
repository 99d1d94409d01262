#pragma once
// Gradients on their way from the model to the optimizer: a micro-batch's gradients are folded unit by unit
// into the accumulators of the slice (numerics rules 1-6, 9), beside the backward pass of the units below;
// once a unit's last micro-batch is in, replicas exchange its tree nodes and each folds its part of the sum.
#include <limits>
#include <span>
#include <vector>

#include "src/config/lane_plan.hpp"
#include "src/shard/layout.hpp"
#include "src/shard/memory_plan.hpp"
#include "src/shard/policy.hpp"
#include "src/shard/resources.hpp"

namespace holdfast::shard {

using config::LaneOp, config::LanePlan;

class GradientSums {
 public:
  /// Plans its memory.
  GradientSums(const Layout& layout, const LanePlan& lanes, const Policy& policy, const MemoryPlan& memory,
               const Resources& resources);
  GradientSums(const GradientSums&) = delete;  // operations in flight know it by address

  /// Where the micro-batch's gradient of a stored tensor goes, null for a frozen one; waits until the
  /// buffer's last content was folded.
  float* gradient(int stored);
  /// Enqueues the fold of a unit's micro-batch, and behind the last one the exchange among replicas.
  void reduce(int unit, int micro_step);
  /// Afterwards sums() holds the gradient sums of everything the optimizer updates here.
  void finish();
  float* sums();

 private:
  /// Micro-batches of one unit into the accumulators.
  class MicroBatches final : public comm::Folder {
   public:
    MicroBatches(GradientSums& all, int unit) : all_(all), unit_(unit) {}
    void fold(tensor::Stream& stream, int tensor, std::int64_t first, std::int64_t count,
              std::span<const void* const> sources) override;
    const std::vector<LaneOp>* additions = nullptr;  ///< of the micro-step

   private:
    GradientSums& all_;
    int unit_;
  };
  /// Tree nodes of all replicas into the sum.
  class Nodes final : public comm::Folder {
   public:
    Nodes(GradientSums& all, int unit) : all_(all), unit_(unit) {}
    void fold(tensor::Stream& stream, int tensor, std::int64_t first, std::int64_t count,
              std::span<const void* const> sources) override;

   private:
    GradientSums& all_;
    int unit_;
  };
  /// One unit's operations; they are known by address while in flight.
  struct Unit {
    Unit(GradientSums& all, int unit) : micro_batches(all, unit), nodes(all, unit) {}
    MicroBatches micro_batches;
    Nodes nodes;
    std::vector<comm::Extent> gradient_extents, node_extents;
    tensor::Event folded, exchanged, gathered;  ///< of the latest step
  };

  bool splits() const { return layout_.mesh.split_optimizer; }
  float* gradient_at(const StoredSlice& s) {
    const auto buffer = static_cast<std::size_t>(gradient_buffer_of(s.unit, layout_.layers));
    return reinterpret_cast<float*>(r_.symmetric.at(gradients_[buffer])) + s.gradient_offset;
  }
  /// Of the trained tensors of a unit.
  const StoredSlice& slice(int unit, int tensor) const {
    const auto& stored = layout_.unit_trained[static_cast<std::size_t>(unit)];
    return layout_.slices[static_cast<std::size_t>(stored[static_cast<std::size_t>(tensor)])];
  }
  /// Folds may run on a communication thread, which therefore never asks the arenas.
  void find_memory();
  void exchange(Unit& unit, int number);
  /// Where the slots of additions lie.
  struct Slots {
    float* first;  ///< slot 0
    float* rest;   ///< slot k > 0 is at rest + k * stride ...
    std::int64_t stride;
    int kept = std::numeric_limits<int>::max();  ///< ... but from this one on behind each other here:
    float* temporaries = nullptr;
    std::int64_t temporary_stride = 0;
    float* at(int slot) const {
      if (slot == 0) return first;
      return slot < kept ? rest + slot * stride : temporaries + (slot - kept) * temporary_stride;
    }
  };
  /// `additions` on `count` elements.
  void add_up(tensor::Stream& stream, const std::vector<LaneOp>& additions, const Slots& slots,
              std::int64_t count, std::span<const void* const> sources, DType type);

  const Layout& layout_;
  const Policy policy_;
  const Resources r_;

  std::vector<std::vector<LaneOp>> additions_;  // of each micro-step
  std::vector<LaneOp> final_additions_;
  std::vector<int> nodes_of_;  // tree nodes that each replica brings

  std::vector<tensor::Arena::Piece<std::byte>> gradients_;
  tensor::Arena::Piece<std::byte> accumulators_;
  tensor::Arena::Piece<float> sums_, lane_scratch_, scratch_;
  float *accumulators_at_ = nullptr, *sums_at_ = nullptr, *lane_scratch_at_ = nullptr,
        *scratch_at_ = nullptr;            // set once
  const int kept_;                         // accumulators
  const std::int64_t added_at_once_;       // elements that are folded at a time; 0: all
  std::vector<const void*> lane_sources_;  // of one such fold
  std::vector<Unit> units_;
  std::vector<tensor::Event> gradient_free_;  // by gradient buffer: its content was folded
};

}  // namespace holdfast::shard
