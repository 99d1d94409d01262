#include "src/optim/sharded_adamw.hpp"

#include <cmath>

#include "src/optim/schedule.hpp"

namespace holdfast::optim {

StepDecision decide(const config::Optim& settings, std::int64_t step, std::int64_t steps, double squares,
                    std::int64_t valid) {
  StepDecision out;
  out.lr = learning_rate(settings, step, steps);
  out.update = valid > 0;
  if (!out.update) return out;
  const double mean = 1.0 / static_cast<double>(valid);
  out.gradient_norm = std::sqrt(squares) * mean;
  const bool clips = settings.clip_norm > 0 && out.gradient_norm > settings.clip_norm;
  out.scalars =
      kernels::step_scalars(out.lr, settings.weight_decay, settings.beta1, settings.beta2, settings.epsilon,
                            step + 1, clips ? mean * (settings.clip_norm / out.gradient_norm) : mean);
  return out;
}

ShardedAdamW::ShardedAdamW(const shard::Layout& layout, const std::vector<config::TensorSpec>& tensors,
                           kernels::Kernels& kernels, tensor::Stream& stream, tensor::Arena& arena)
    : layout_(layout), kernels_(kernels), stream_(stream), arena_(arena) {
  for (const auto& tensor : tensors) decay_.push_back(tensor.decay);
  m_ = arena.plan<float>("first moments", layout.arena_elements);
  v_ = arena.plan<float>("second moments", layout.arena_elements);
}

tensor::ExactSum ShardedAdamW::squares(const float* gradients) {
  tensor::ExactSum sum;
  for (const shard::Piece& piece : layout_.owned)
    kernels_.sum_squares(stream_, gradients + piece.offset, piece.count, &sum);
  return sum;
}

void ShardedAdamW::update(float* parameters, const float* gradients, const StepDecision& decision) {
  if (!decision.update) return;
  for (const shard::Piece& piece : layout_.held) {
    float *p = parameters + piece.offset, *m = exp_avg() + piece.offset, *v = exp_avg_sq() + piece.offset;
    kernels_.adamw(stream_,
                   {p, m, v, gradients + piece.offset, p, m, v, piece.count,
                    decay_[static_cast<std::size_t>(piece.tensor)]},
                   decision.scalars);
  }
}

}  // namespace holdfast::optim
