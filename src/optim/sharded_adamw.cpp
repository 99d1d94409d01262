#include "src/optim/sharded_adamw.hpp"

#include <cmath>
#include <type_traits>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/optim/schedule.hpp"

namespace holdfast::optim {

static_assert(std::is_trivially_copyable_v<StepUpdate>);

StepUpdate step_update(const config::Optim& settings, const TensorGroups& groups, std::int64_t step,
                       std::int64_t steps, double squares, std::int64_t valid) {
  StepUpdate out;
  out.lr = learning_rate(settings, step, steps);
  out.update = valid > 0;
  if (!out.update) return out;
  const double mean = 1.0 / static_cast<double>(valid);
  out.gradient_norm = std::sqrt(squares) * mean;
  const bool clips = settings.clip_norm > 0 && out.gradient_norm > settings.clip_norm;
  const double scale = clips ? mean * (settings.clip_norm / out.gradient_norm) : mean;
  for (std::size_t i = 0; i < groups.settings.size(); ++i) {
    const GroupSettings& group = groups.settings[i];
    out.scalars[i] = kernels::step_scalars(out.lr * group.lr_scale, group.weight_decay, settings.beta1,
                                           settings.beta2, settings.epsilon, step + 1, scale);
  }
  return out;
}

ShardedAdamW::ShardedAdamW(const shard::Layout& layout, const TensorGroups& groups, kernels::DType moments,
                           kernels::Kernels& kernels, tensor::Stream& stream, tensor::Arena& moments_arena,
                           tensor::Arena& arena)
    : layout_(layout),
      groups_(groups),
      type_(moments),
      kernels_(kernels),
      stream_(stream),
      moments_arena_(moments_arena),
      arena_(arena) {
  for (const auto& piece : layout.held)
    expects(as_size(piece.tensor) < groups.of.size(), "a group for every tensor");
  m_ = moments_arena.plan<std::byte>("first moments", layout.arena_elements * tensor::bytes_of(moments));
  v_ = moments_arena.plan<std::byte>("second moments", layout.arena_elements * tensor::bytes_of(moments));
  squares_ = arena.plan<tensor::ExactSum>("squares of gradients", 1);
  held_ = runs_of(layout.held, false);
  owned_ = runs_of(layout.owned, true);
}

/// `alike`: all tensors are.
std::vector<ShardedAdamW::Run> ShardedAdamW::runs_of(const std::vector<shard::Piece>& pieces,
                                                     bool alike) const {
  std::vector<Run> out;
  for (const shard::Piece& piece : pieces) {
    const auto tensor = as_size(piece.tensor);
    const Run next{piece.offset, piece.count, alike ? 0 : groups_.of[tensor],
                   !alike && groups_.decays[tensor]};
    if (!out.empty() && out.back().offset + out.back().count == next.offset &&
        out.back().group == next.group && out.back().decays == next.decays)
      out.back().count += next.count;
    else
      out.push_back(next);
  }
  return out;
}

tensor::ExactSum ShardedAdamW::squares(const float* gradients) {
  tensor::ExactSum* const there = arena_.at(squares_);
  stream_.zero(there, sizeof *there);
  for (const Run& run : owned_) kernels_.sum_squares(stream_, gradients + run.offset, run.count, there);
  tensor::ExactSum sum;
  stream_.download(&sum, there, sizeof sum);
  return sum;
}

void ShardedAdamW::update(const StateArenas& from, const float* gradients, const StepUpdate& step,
                          const StateArenas& to) {
  if (!step.update) return copy(from, to);
  for (const Run& run : held_) {
    kernels::StepScalars scalars = step.scalars[as_size(run.group)];
    if (!run.decays) scalars.lr_decay = 0;
    const std::int64_t at = run.offset, moment_at = at * tensor::bytes_of(type_);
    kernels_.adamw(
        stream_,
        {from.parameters + at, gradients + at, from.exp_avg + moment_at, from.exp_avg_sq + moment_at,
         to.parameters + at, to.exp_avg + moment_at, to.exp_avg_sq + moment_at, type_, run.count},
        scalars);
  }
}

void ShardedAdamW::copy(const StateArenas& from, const StateArenas& to) {
  if (from == to) return;
  const std::int64_t moment_bytes = layout_.arena_elements * tensor::bytes_of(type_);
  stream_.copy(to.parameters, from.parameters,
               layout_.arena_elements * static_cast<std::int64_t>(sizeof(float)));
  stream_.copy(to.exp_avg, from.exp_avg, moment_bytes);
  stream_.copy(to.exp_avg_sq, from.exp_avg_sq, moment_bytes);
}

}  // namespace holdfast::optim
