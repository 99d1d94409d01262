#pragma once
// Which transformer blocks stay gathered between their forward and their backward pass: shard.keep_gathered.
#include <vector>

#include "src/config/run_config.hpp"

namespace holdfast::config {

/// By block, from 0 (sharding unit = block + 1). All of them under shard_grad_op. Throws Error (usage) for a
/// text that is neither "none", "all", nor a list of blocks and ranges of blocks that the model has.
std::vector<bool> kept_blocks(const Shard& shard, int layers);

}  // namespace holdfast::config
