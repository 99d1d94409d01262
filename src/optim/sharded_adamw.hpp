#pragma once
// AdamW over the slices of one rank. What depends on the whole model (norm, valid tokens, learning rate) is a
// handful of scalars, computed once from exact integer sums and the same bits everywhere.
#include <array>
#include <vector>

#include "src/config/run_config.hpp"
#include "src/kernels/kernels.hpp"
#include "src/optim/groups.hpp"
#include "src/shard/layout.hpp"
#include "src/tensor/arena.hpp"

namespace holdfast::optim {

/// What one optimizer step does, computed on logical rank 0 and broadcast as bits. Trivially copyable.
struct StepUpdate {
  std::array<kernels::StepScalars, max_groups> scalars;  ///< by group; unused ones are defaults
  double gradient_norm = 0;                              ///< of the mean gradient, before clipping
  double lr = 0;                                         ///< of the base group
  bool update = true;  ///< false: there was no valid token, the state stays as it is
};

/// `squares`: sum of squares of the gradient of the *sum* of losses; `valid`: tokens it was summed over;
/// `step` from 0. Does not allocate.
StepUpdate step_update(const config::Optim& settings, const TensorGroups& groups, std::int64_t step,
                       std::int64_t steps, double squares, std::int64_t valid);

/// Where the three arenas of an optimizer state lie.
struct StateArenas {
  float* parameters = nullptr;
  std::byte *exp_avg = nullptr, *exp_avg_sq = nullptr;
  bool operator==(const StateArenas&) const = default;
};

class ShardedAdamW {
 public:
  /// Plans both moments, of type `moments`, in `moments_arena`, zero after its commit, and little else in
  /// `arena`. All references must outlive it. `groups`: of the tensors that `layout` was made for.
  ShardedAdamW(const shard::Layout& layout, const TensorGroups& groups, kernels::DType moments,
               kernels::Kernels& kernels, tensor::Stream& stream, tensor::Arena& moments_arena,
               tensor::Arena& arena);

  kernels::DType moments() const { return type_; }
  std::byte* exp_avg() { return moments_arena_.at(m_); }     ///< Layout::arena_elements of type moments()
  std::byte* exp_avg_sq() { return moments_arena_.at(v_); }  ///< the same

  /// Squares of the gradients that this rank owns; summed over ranks, each element counts once. Waits.
  tensor::ExactSum squares(const float* gradients);
  /// Updates everything held here. `to` is `from`, or lies apart from it: then it also gets what does not
  /// change.
  void update(const StateArenas& from, const float* gradients, const StepUpdate& step, const StateArenas& to);

 private:
  /// Elements behind each other in the arenas that are treated alike, so that few calls do.
  struct Run {
    std::int64_t offset = 0, count = 0;
    int group = 0;
    bool decays = false;
  };
  std::vector<Run> runs_of(const std::vector<shard::Piece>& pieces, bool alike) const;
  void copy(const StateArenas& from, const StateArenas& to);

  const shard::Layout& layout_;
  const TensorGroups& groups_;
  kernels::DType type_;
  kernels::Kernels& kernels_;
  tensor::Stream& stream_;
  tensor::Arena &moments_arena_, &arena_;
  tensor::Arena::Piece<std::byte> m_, v_;
  tensor::Arena::Piece<tensor::ExactSum> squares_;
  std::vector<Run> held_, owned_;
};

}  // namespace holdfast::optim
