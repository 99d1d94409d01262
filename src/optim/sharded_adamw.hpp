#pragma once
// AdamW over the slices of one rank. What depends on the whole model (norm, valid tokens, learning rate) is a
// handful of scalars, computed once from exact integer sums and the same bits everywhere.
#include <vector>

#include "src/config/run_config.hpp"
#include "src/kernels/kernels.hpp"
#include "src/shard/layout.hpp"
#include "src/tensor/arena.hpp"

namespace holdfast::optim {

/// What one optimizer step does, decided on logical rank 0 and broadcast as bits. Trivially copyable.
struct StepDecision {
  kernels::StepScalars scalars;
  double gradient_norm = 0;  ///< of the mean gradient, before clipping
  double lr = 0;
  bool update = true;  ///< false: there was no valid token, the state stays as it is
};

/// `squares`: sum of squares of the gradient of the *sum* of losses; `valid`: tokens it was summed over;
/// `step` from 0.
StepDecision decide(const config::Optim& settings, std::int64_t step, std::int64_t steps, double squares,
                    std::int64_t valid);

class ShardedAdamW {
 public:
  /// Plans both moments in `arena`, zero after its commit. All references must outlive it.
  ShardedAdamW(const shard::Layout& layout, const std::vector<config::TensorSpec>& tensors,
               kernels::Kernels& kernels, tensor::Stream& stream, tensor::Arena& arena);

  float* exp_avg() { return arena_.at(m_); }     ///< arena of Layout::arena_elements
  float* exp_avg_sq() { return arena_.at(v_); }  ///< the same

  /// Squares of the gradients that this rank owns; summed over ranks, each element counts once.
  tensor::ExactSum squares(const float* gradients);
  /// Updates everything held here.
  void update(float* parameters, const float* gradients, const StepDecision& decision);

 private:
  const shard::Layout& layout_;
  kernels::Kernels& kernels_;
  tensor::Stream& stream_;
  tensor::Arena& arena_;
  std::vector<bool> decay_;  ///< by logical tensor
  tensor::Arena::Piece<float> m_, v_;
};

}  // namespace holdfast::optim
