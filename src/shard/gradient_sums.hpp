#pragma once
// Gradients on their way from the model to the optimizer: a micro-batch's gradients are added unit by unit
// to the accumulators of the slice (numerics rules 1-6, 9), beside the backward pass of the units below;
// once a unit's last micro-batch is in, replicas exchange its partial sums and each adds up its part.
//
// Where a rank holds whole tensors (S = 1) and nothing is rounded for the wire, the micro-batch belongs to
// one lane, and the model writes where the sum is: all gradients of a lane's first micro-batch, and those of
// further ones that a product adds itself. The rest goes by the gradient buffers, as everything does
// elsewhere.
#include <limits>
#include <span>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/config/lane_plan.hpp"
#include "src/shard/layout.hpp"
#include "src/shard/memory_plan.hpp"
#include "src/shard/policy.hpp"
#include "src/shard/resources.hpp"

namespace holdfast::shard {

using config::Additions, config::LanePlan;

class GradientSums {
 public:
  /// Plans its memory.
  GradientSums(const Layout& layout, const LanePlan& lanes, const Policy& policy, const MemoryPlan& memory,
               const Resources& resources);
  GradientSums(const GradientSums&) = delete;  // operations in flight know it by address

  /// `apart`: every gradient goes by a gradient buffer, so that it can be read before it is added.
  void begin_micro_step(int micro_step, bool apart);
  /// Its gradients go to the gradient buffers and are not added.
  void begin_micro_batch() { direct_ = nullptr; }
  /// Where the micro-batch's gradient of a stored tensor goes, null for a frozen one; waits until the
  /// buffer's last content was added.
  float* gradient(int stored);
  /// The micro-batch's gradient of a stored tensor is added to what is at gradient().
  bool adds(int stored) const {
    const StoredSlice& s = layout_.slices[stored];
    return lies_in_sum(s, direct_) && !direct_->terms.front().begins;
  }
  /// The type to which the product rounds it: that of the wire, where a product can.
  DType gradient_type(int stored) const {
    const StoredSlice& s = layout_.slices[stored];
    return s.linear && policy_.parameters == policy_.reduce ? policy_.reduce : DType::fp32;
  }
  /// Enqueues the reduction of a unit's gradients, and behind the last one the exchange among replicas.
  void reduce(int unit);
  /// Afterwards sums() holds the gradient sums of everything the optimizer updates here.
  void finish();
  float* sums();

 private:
  /// Gradients of one unit into the accumulators.
  class MicroBatchReducer final : public comm::OrderedReducer {
   public:
    MicroBatchReducer(GradientSums& all, int unit) : all_(all), unit_(unit) {}
    void reduce(tensor::Stream& stream, int tensor, std::int64_t first, std::int64_t count,
                std::span<const void* const> sources) override;
    const Additions* additions = nullptr;  ///< the micro-step's
    const Additions* direct = nullptr;  ///< the same, where the model has added to the sum itself; else null

   private:
    GradientSums& all_;
    int unit_;
  };
  /// Partial sums of all replicas into the sum.
  class PartialSumReducer final : public comm::OrderedReducer {
   public:
    PartialSumReducer(GradientSums& all, int unit) : all_(all), unit_(unit) {}
    void reduce(tensor::Stream& stream, int tensor, std::int64_t first, std::int64_t count,
                std::span<const void* const> sources) override;

   private:
    GradientSums& all_;
    int unit_;
  };
  /// One unit's operations; they are known by address while in flight.
  struct Unit {
    Unit(GradientSums& all, int unit) : micro_batches(all, unit), partial_sums(all, unit) {}
    MicroBatchReducer micro_batches;
    PartialSumReducer partial_sums;
    std::vector<comm::Extent> gradient_extents;
    std::vector<comm::Extent> sum_extents;       ///< of each tensor under HFSDP, else all at once
    tensor::Event reduced, exchanged, gathered;  ///< of the latest step
  };

  bool splits() const { return layout_.mesh.split_optimizer; }
  float* gradient_at(const StoredSlice& s) {
    const auto buffer = as_size(gradient_buffer_of(s.unit, layout_.layers));
    return reinterpret_cast<float*>(r_.symmetric.at(gradients_[buffer])) + s.gradient_offset;
  }
  /// The model carries the addition of its gradient out, where the accumulator is.
  static bool lies_in_sum(const StoredSlice& s, const Additions* direct) {
    return direct != nullptr && !s.frozen && (direct->terms.front().begins || s.linear);
  }
  /// The accumulator to which the micro-step's first gradient comes.
  static int first_accumulator(const Additions& additions) {
    return additions.before - (additions.terms.front().begins ? 0 : 1);
  }
  /// Of the trained tensors of a unit.
  const StoredSlice& slice(int unit, int tensor) const {
    const auto& stored = layout_.unit_trained[unit];
    return layout_.slices[stored[tensor]];
  }
  /// Reductions may run on a communication thread, which therefore never asks the arenas.
  void find_memory();
  void exchange(Unit& unit, int number);
  /// Where the sums of a stack lie.
  struct Stack {
    std::vector<float*> sums;
    int in_place = 0;                ///< so many lie by element, those above in temporaries ...
    std::int64_t at_once = 0;        ///< ... of so many elements; 0: there are none
    std::vector<const void*> terms;  ///< of a piece of so many elements
  };
  /// Terms, `count` elements of each, that come on a stack with `before` sums; `result` as
  /// kernels::OrderedSum has it.
  void add_up(tensor::Stream& stream, Stack& stack, int before, std::span<const Addition> additions,
              std::span<const void* const> terms, DType type, std::int64_t count, float* result = nullptr);

  const Layout& layout_;
  const Policy policy_;
  const Resources r_;

  std::vector<Additions> additions_;  // of each micro-step
  Additions final_additions_;
  std::vector<int> sums_of_;  // partial sums that each replica brings
  int micro_step_ = 0;
  const Additions* direct_ = nullptr;  // of the micro-step, where the model can carry its one addition out

  std::vector<tensor::Arena::Piece<std::byte>> gradients_;
  tensor::Arena::Piece<std::byte> accumulators_;
  tensor::Arena::Piece<float> sums_, lane_scratch_, scratch_;
  float *accumulators_at_ = nullptr, *sums_at_ = nullptr, *lane_scratch_at_ = nullptr,
        *scratch_at_ = nullptr;  // set once
  Stack lanes_, partial_sums_;   // each is used by one reducer at a time
  std::vector<Unit> units_;
  std::vector<tensor::Event> gradient_free_;  // by gradient buffer: its content was added
};

}  // namespace holdfast::shard
