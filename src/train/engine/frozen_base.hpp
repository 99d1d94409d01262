#pragma once
// What adapters are trained on: the model's own weights, which nothing changes. They lie in the frozen arena
// (shard::FrozenPlan); no checkpoint holds them, every start brings them anew.
#include <string>

#include "src/comm/communicator.hpp"
#include "src/shard/sharded_weights.hpp"
#include "src/tensor/stream.hpp"
#include "src/train/common/setup.hpp"

namespace holdfast::train {

/// What lies in the frozen arena.
struct FrozenBase {
  std::string digest;  ///< of the weights in fp32, as they came; "": nothing is frozen
  std::string path;    ///< where they came from; "": the seed
};

/// Collective. Fills the frozen arena, each rank its own part through a small buffer. Throws Error when the
/// weights cannot be had.
FrozenBase fill_frozen(const Setup& setup, const shard::Layout& layout, const shard::Policy& policy,
                       shard::ShardedWeights& arenas, tensor::Stream& stream, comm::Communicator& world);

}  // namespace holdfast::train
