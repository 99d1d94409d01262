#pragma once
// What adapters are trained on: the model's own weights, which nothing changes. They lie in the frozen arena
// (shard::FrozenPlan); no checkpoint holds them, every start brings them anew.
#include <string>

#include "src/comm/communicator.hpp"
#include "src/shard/sharded_weights.hpp"
#include "src/tensor/stream.hpp"
#include "src/train/setup.hpp"

namespace holdfast::train {

/// Collective. Fills the frozen arena, each rank its own part through a small buffer. Returns the digest of
/// the weights, in fp32 as they came; "" when nothing is frozen. Throws Error when they cannot be had.
std::string fill_frozen(const Setup& setup, const shard::Layout& layout, const shard::Policy& policy,
                        shard::ShardedWeights& weights, tensor::Stream& stream, comm::Communicator& world);

}  // namespace holdfast::train
