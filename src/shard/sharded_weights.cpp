#include "src/shard/sharded_weights.hpp"

#include "src/base/error.hpp"

namespace holdfast::shard {

ShardedWeights::ShardedWeights(const Layout& layout, const LanePlan& lanes, const Policy& policy,
                               const Resources& resources)
    : ShardedWeights(layout, lanes, policy, memory_plan(layout, lanes, policy), resources) {
  const Mesh& mesh = layout.mesh;
  const Groups& groups = resources.groups;
  for (const comm::Communicator* shard : {groups.gathers.get(), groups.reductions.get()})
    expects(shard->size() == mesh.group && shard->rank() == mesh.member(), "the shard group of the mesh");
  expects(groups.replicas->size() == mesh.replicas && groups.replicas->rank() == mesh.replica(),
          "the replicas of the mesh");
}

ShardedWeights::ShardedWeights(const Layout& layout, const LanePlan& lanes, const Policy& policy,
                               const MemoryPlan& memory, const Resources& resources)
    : units_(layout, policy, memory, lanes.micro_steps(layout.mesh.replica()), resources),
      sums_(layout, lanes, policy, memory, resources) {}

}  // namespace holdfast::shard
