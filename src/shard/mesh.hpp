#pragma once
// Who shards with whom, as a pure function of logical ranks: shard group g is ranks [g*S, (g+1)*S), and the
// replicas of a part are the ranks with the same place in their groups.
#include <memory>

#include "src/comm/communicator.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::shard {

struct Mesh {
  int world = 1, rank = 0;
  int group = 1;     ///< S: ranks of a shard group; each member holds 1/S of every tensor
  int replicas = 1;  ///< R = world / S: groups that hold the same
  /// HFSDP: replicas share out the optimizer's work and state, each has 1/R of the slice; else each does all.
  bool split_optimizer = false;
  int member() const { return rank % group; }
  int replica() const { return rank / group; }
};

/// NO_SHARD: S = 1. FULL_SHARD, SHARD_GRAD_OP: S = world. HYBRID_SHARD, HFSDP: S = `group`, or
/// `ranks_per_node` where that is 0 (at most the world). An Error (usage) when S does not divide the world.
Mesh mesh_of(config::Strategy strategy, int group, int ranks_per_node, int world, int rank);

/// The communicators of a rank. Gathers and reductions of a shard group have one each, so that neither waits
/// behind the other.
struct Groups {
  std::unique_ptr<comm::Communicator> gathers, reductions, replicas;
};
/// Collective over the world.
Groups groups_of(const Mesh& mesh, comm::Communicator& world);

}  // namespace holdfast::shard
