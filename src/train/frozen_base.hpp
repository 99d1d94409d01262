#pragma once
// What adapters are trained on: the model's own weights, which nothing changes. They lie in the frozen arena
// in the parameter type; no checkpoint holds them, every start brings them anew.
#include <cstdint>
#include <string>

#include "src/comm/communicator.hpp"
#include "src/shard/sharded_weights.hpp"
#include "src/tensor/stream.hpp"
#include "src/train/setup.hpp"

namespace holdfast::train {

/// Collective. Fills Layout::frozen in the frozen arena, each rank its own part through a small buffer.
/// Returns the digest of all of it, as it lies there; "" when nothing is frozen. Throws Error when weights
/// cannot be had, see read_initial_weights().
std::string fill_frozen(const Setup& setup, const shard::Layout& layout, shard::ShardedWeights& weights,
                        tensor::Stream& stream, comm::Communicator& world);

}  // namespace holdfast::train
