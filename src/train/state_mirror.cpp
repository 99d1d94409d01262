#include "src/train/state_mirror.hpp"

namespace holdfast::train {

StateMirror::StateMirror(device::Device& device, const shard::Layout& layout, shard::ShardedWeights& weights,
                         optim::ShardedAdamW& adamw, bool moments_on_host)
    : device_(device) {
  const std::int64_t parameters = layout.arena_elements * static_cast<std::int64_t>(sizeof(float)),
                     moments = layout.arena_elements * tensor::bytes_of(adamw.moments());
  parts_[0] = {reinterpret_cast<std::byte*>(weights.parameters()), nullptr, parameters};
  parts_[1] = {adamw.exp_avg(), nullptr, moments};
  parts_[2] = {adamw.exp_avg_sq(), nullptr, moments};
  for (Part& part : parts_) {
    const bool there = device.is_host() || (moments_on_host && &part != &parts_[0]);
    part.host = there ? part.device : device.allocate_host(part.bytes, "the host's copy of the state").data();
  }
}

void StateMirror::fetch() {
  tensor::Stream& side = device_.side();
  side.wait(device_.compute().record());
  for (const Part& part : parts_)
    if (part.host != part.device) side.copy(part.host, part.device, part.bytes);
  side.record().wait();
}

void StateMirror::store() {
  for (const Part& part : parts_)
    if (part.host != part.device) device_.compute().copy(part.device, part.host, part.bytes);
  device_.compute().record().wait();  // the host may change its copy again
}

}  // namespace holdfast::train
