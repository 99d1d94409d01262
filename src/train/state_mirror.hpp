#pragma once
// The state of this rank as the host sees it: what checkpoints, digests and initial weights read and write.
// On the host it is the state itself; for a GPU it is a copy in pinned memory, brought over and back as a
// whole.
#include <cstdint>

#include "src/device/device.hpp"
#include "src/optim/sharded_adamw.hpp"
#include "src/shard/sharded_weights.hpp"

namespace holdfast::train {

class StateMirror {
 public:
  /// After the arenas were committed. `moments_on_host`: they lie in host memory and need no copy.
  StateMirror(device::Device& device, const shard::Layout& layout, shard::ShardedWeights& weights,
              optim::ShardedAdamW& adamw, bool moments_on_host);

  float* parameters() const { return reinterpret_cast<float*>(parts_[0].host); }
  std::byte* exp_avg() const { return parts_[1].host; }
  std::byte* exp_avg_sq() const { return parts_[2].host; }

  /// The state as it is behind everything that compute was given so far. Waits. Copies run beside compute:
  /// until the next optimizer step nothing changes the state.
  void fetch();
  /// The host has changed it: compute enqueued later sees that.
  void store();

 private:
  struct Part {
    std::byte* device = nullptr;
    std::byte* host = nullptr;  // the same address: no copy
    std::int64_t bytes = 0;
  };
  device::Device& device_;
  Part parts_[3];
};

}  // namespace holdfast::train
