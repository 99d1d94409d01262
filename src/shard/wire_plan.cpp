#include "src/shard/wire_plan.hpp"

#include "src/shard/schedule.hpp"

namespace holdfast::shard {
namespace {

/// Bytes of all units' gathers in a step: a member's slice goes to each of the others.
std::int64_t gather_bytes(const Layout& layout, const Policy& policy, int micro_steps) {
  std::vector<std::int64_t> of_unit(layout.units(), 0);
  for (const StoredSlice& s : layout.slices)
    of_unit[s.unit] += s.slice.count * tensor::bytes_of(policy.parameters) * (layout.mesh.group - 1);
  std::int64_t sum = 0;
  for (const Gather& gather : schedule_of(uses_of(layout.layers, layout.tied, micro_steps),
                                          gather_buffers_of(layout.layers, policy), policy)
                                  .gathers)
    sum += of_unit[gather.unit];
  return sum;
}

}  // namespace

WirePlan wire_plan(const Layout& layout, const LanePlan& lanes, const Policy& policy) {
  const Mesh& mesh = layout.mesh;
  const int micro_steps = lanes.micro_steps(mesh.replica());
  WirePlan out;
  if (mesh.group > 1) out.gathers.all_gather = gather_bytes(layout, policy, micro_steps);
  const auto partial_sums = static_cast<std::int64_t>(lanes.partial_sums(mesh.replica()).size());
  const auto among_replicas = [&](std::int64_t elements, std::int64_t mine, DType gathered) {
    out.replicas.exchange_partial_sums += partial_sums * (elements - mine) * tensor::bytes_of(DType::fp32);
    out.replicas.all_gather += mine * (mesh.replicas - 1) * tensor::bytes_of(gathered);
  };
  for (const StoredSlice& s : layout.slices) {
    if (s.frozen) continue;
    out.reductions.ordered_reduce_scatter +=
        micro_steps * (s.elements - s.slice.count) * tensor::bytes_of(policy.reduce);
    if (mesh.split_optimizer) among_replicas(s.slice.count, s.owned.count, policy.parameters);
  }
  for (const Slice& unit : layout.unit_slices)  // as GradientSums exchanges them
    if (mesh.replicas > 1 && !mesh.split_optimizer)
      among_replicas(unit.count, slice_of(unit.count, mesh.replicas, mesh.replica()).count, DType::fp32);
  return out;
}

}  // namespace holdfast::shard
