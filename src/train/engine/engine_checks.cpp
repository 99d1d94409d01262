// What the engine does beside a step so that others can tell whether its arithmetic and its memory are sound;
// and, for drills, so that they are not.
#include <algorithm>
#include <bit>
#include <cmath>

#include "src/base/digest.hpp"
#include "src/train/engine/engine.hpp"

namespace holdfast::train {

std::int64_t Engine::micro_batch_of(int rank, std::uint64_t chosen) const {
  const int replica = rank / layout_.mesh.group;
  return lanes_.micro_batch(replica, micro_step_of(replica, chosen), rank % layout_.mesh.group);
}

int Engine::micro_step_of(int replica, std::uint64_t chosen) const {
  return static_cast<int>(chosen % static_cast<std::uint64_t>(lanes_.micro_steps(replica)));
}

int Engine::most_micro_steps() const {
  int most = 0;
  for (int replica = 0; replica < layout_.mesh.replicas; ++replica)
    most = std::max(most, lanes_.micro_steps(replica));
  return most;
}

void Engine::watch_micro_batch(std::uint64_t chosen) {
  watched_ = micro_step_of(layout_.mesh.replica(), chosen);
  fault_.reset();
}

void Engine::spoil_gradient(const GradientFault& fault) {
  if (watched_ < 0) watched_ = 0;
  fault_ = fault;
}

Engine::Recomputed Engine::recompute_micro_batch(std::int64_t first_sample, std::int64_t micro_batch,
                                                 const Progress& progress) {
  progress_ = &progress;
  progress(control::Phase::data);
  const model::Batch batch = read_micro_batch(first_sample, micro_batch);
  weights_.begin_micro_batch();
  transformer_.new_weights();  // what is kept of them may be what is wrong
  gradient_watch_.begin(false, broken_);
  transformer_.forward_backward(gradient_watch_, batch);
  // The step has counted its micro-batches already.
  const model::LossSum loss = transformer_.take_loss();
  if (scaling_) {
    std::vector<std::uint32_t> known_already(amaxes_.size());
    transformer_.take_amaxes(known_already);
  }
  progress(control::Phase::collective);
  progress_ = nullptr;
  const GradientsSeen seen = gradient_watch_.seen();
  return {seen.hash, seen.finite && std::isfinite(loss.sum.value())};
}

void Engine::flip_parameter(std::uint64_t seed) {
  constexpr int fraction_bits = 23;
  const shard::Piece& piece = layout_.held[mix64(seed) % layout_.held.size()];
  float* const element =
      weights_.parameters() + piece.offset + mix64(seed + 1) % static_cast<std::uint64_t>(piece.count);
  std::uint32_t bits = 0;
  stream_.download(&bits, element, sizeof bits);
  bits ^= 1U << mix64(seed + 2) % fraction_bits;
  stream_.upload(element, &bits, sizeof bits);
}

}  // namespace holdfast::train
