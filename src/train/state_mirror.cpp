#include "src/train/state_mirror.hpp"

#include <cstring>

namespace holdfast::train {

StateMirror::StateMirror(device::Device& device, const shard::Layout& layout, shard::ShardedWeights& weights,
                         optim::ShardedAdamW& adamw, bool moments_on_host)
    : device_(device),
      weights_(weights),
      adamw_(adamw),
      parameter_bytes_(layout.arena_elements * static_cast<std::int64_t>(sizeof(float))),
      moment_bytes_(layout.arena_elements * tensor::bytes_of(adamw.moments())) {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const bool there = device.is_host() || (moments_on_host && i > 0);
    if (!there)
      copies_[i] =
          device.allocate_host(i == 0 ? parameter_bytes_ : moment_bytes_, "the host's copy of the state")
              .data();
  }
}

std::array<StateMirror::Part, 3> StateMirror::parts() const {
  return {{{reinterpret_cast<std::byte*>(weights_.parameters()), copies_[0], parameter_bytes_},
           {adamw_.exp_avg(), copies_[1], moment_bytes_},
           {adamw_.exp_avg_sq(), copies_[2], moment_bytes_}}};
}

StateArenas StateMirror::host() const {
  const auto [parameters, exp_avg, exp_avg_sq] = parts();
  const auto seen = [](const Part& part) { return part.copy != nullptr ? part.copy : part.device; };
  return {reinterpret_cast<float*>(seen(parameters)), seen(exp_avg), seen(exp_avg_sq)};
}

void StateMirror::fetch() {
  tensor::Stream& side = device_.side();
  side.wait(device_.compute().record());
  for (const Part& part : parts())
    if (part.copy != nullptr) side.copy(part.copy, part.device, part.bytes);
  side.record().wait();
}

void StateMirror::take(const StateArenas& from) {
  const StateArenas to = host();
  if (to == from) return;
  std::memcpy(to.parameters, from.parameters, static_cast<std::size_t>(parameter_bytes_));
  std::memcpy(to.exp_avg, from.exp_avg, static_cast<std::size_t>(moment_bytes_));
  std::memcpy(to.exp_avg_sq, from.exp_avg_sq, static_cast<std::size_t>(moment_bytes_));
}

void StateMirror::store() {
  for (const Part& part : parts())
    if (part.copy != nullptr) device_.compute().copy(part.device, part.copy, part.bytes);
  device_.compute().record().wait();  // the host may change its copy again
}

}  // namespace holdfast::train
