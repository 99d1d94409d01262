#pragma once
// The state of this rank as the host sees it: what checkpoints, digests and initial weights read and write.
// On the host it is the state itself; for a GPU it is a copy in pinned memory, brought over and back as a
// whole.
#include <array>
#include <cstdint>
#include <span>

#include "src/device/device.hpp"
#include "src/optim/sharded_adamw.hpp"
#include "src/shard/sharded_weights.hpp"

namespace holdfast::train {

using optim::StateArenas;

class StateMirror {
 public:
  /// After the arenas were committed. `moments_on_host`: they lie in host memory and need no copy.
  StateMirror(device::Device& device, const shard::Layout& layout, shard::ShardedWeights& weights,
              optim::ShardedAdamW& adamw, bool moments_on_host);

  /// Where the host sees it. On the host that changes when the arenas move.
  StateArenas host() const;

  /// The state as it is behind everything that compute was given so far. Waits. Copies run beside compute:
  /// until the next optimizer step nothing changes the state.
  void fetch();
  /// Takes the host's side from elsewhere; on the host, where the state itself lies there, nothing.
  void take(const StateArenas& from);
  /// The host has changed it: compute enqueued later sees that.
  void store();

 private:
  struct Part {
    std::byte* device = nullptr;
    std::byte* copy = nullptr;  // null: the host sees the arena itself
    std::int64_t bytes = 0;
  };
  std::array<Part, 3> parts() const;

  device::Device& device_;
  shard::ShardedWeights& weights_;
  optim::ShardedAdamW& adamw_;
  std::int64_t parameter_bytes_, moment_bytes_;
  std::array<std::byte*, 3> copies_{};
};

}  // namespace holdfast::train
