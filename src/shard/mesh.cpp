#include "src/shard/mesh.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/error.hpp"

namespace holdfast::shard {

Mesh mesh_of(config::Strategy strategy, int group, int ranks_per_node, int world, int rank) {
  expects(world > 0 && rank >= 0 && rank < world && group >= 0, "a rank of the world");
  using config::Strategy;
  int members = 1;
  if (strategy == Strategy::full_shard || strategy == Strategy::shard_grad_op) members = world;
  if (strategy == Strategy::hybrid_shard || strategy == Strategy::hfsdp)
    members = group > 0 ? group : std::min(world, std::max(1, ranks_per_node));
  if (world % members != 0)
    throw Error(Exit::usage,
                fmt::format("a world of {} ranks cannot be cut into shard groups of {}", world, members),
                fmt::format("{} is not a multiple of {}", world, members),
                "Set shard.group to a divisor of the number of ranks?");
  const int replicas = world / members;
  return {world, rank, members, replicas, strategy == Strategy::hfsdp && replicas > 1};
}

Groups groups_of(const Mesh& mesh, comm::Communicator& world) {
  const int member = mesh.member(), replica = mesh.replica();
  return {world.split(replica, member, fmt::format("shard group {} (gathers)", replica)),
          world.split(replica, member, fmt::format("shard group {} (reductions)", replica)),
          world.split(member, replica, fmt::format("replicas of part {}", member))};
}

}  // namespace holdfast::shard
