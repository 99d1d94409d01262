#include "src/shard/mesh.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/error.hpp"

namespace holdfast::shard {

Mesh mesh_of(config::Strategy strategy, int group, int ranks_per_node, int world, int rank) {
  expects(world > 0 && rank >= 0 && rank < world && group >= 0, "a rank of the world");
  int members = 1;
  if (strategy == config::Strategy::full_shard) members = world;
  if (strategy == config::Strategy::hybrid_shard)
    members = group > 0 ? group : std::min(world, std::max(1, ranks_per_node));
  if (world % members != 0)
    throw Error(Exit::usage,
                fmt::format("a world of {} ranks cannot be cut into shard groups of {}", world, members),
                fmt::format("{} is not a multiple of {}", world, members),
                "Set shard.group to a divisor of the number of ranks?");
  return {world, rank, members, world / members};
}

}  // namespace holdfast::shard
