#include "src/shard/memory_plan.hpp"

#include <algorithm>
#include <numeric>

#include "src/comm/communicator.hpp"
#include "src/shard/frozen_plan.hpp"
#include "src/shard/schedule.hpp"
#include "src/tensor/arena.hpp"

namespace holdfast::shard {
namespace {

constexpr std::int64_t page = tensor::Arena::whole_alignment;

std::int64_t round_up(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

GradientBuffer gradient_buffer_of(int unit, int layers) {
  if (unit == 0) return embedding_buffer;
  if (unit == layers + 1) return head_buffer;
  return (layers - unit) % 2 == 0 ? block_buffer : block_buffer_2;
}

MemoryPlan memory_plan(const Layout& layout, const LanePlan& lanes, const Policy& policy) {
  const Mesh& mesh = layout.mesh;
  const std::int64_t wire = tensor::bytes_of(policy.parameters), fp32 = sizeof(float);
  auto elements_of = [&](int unit) { return layout.unit_elements[unit]; };
  MemoryPlan out;
  if (gathers(layout, policy)) {
    const GatherBuffers buffers = gather_buffers_of(layout.layers, policy);
    out.gather_buffers.assign(buffers.count, 0);
    for (int r = buffers.ring_first; r < buffers.count; ++r)
      out.gather_buffers[r] = round_up(elements_of(1) * wire, page);
    for (int unit = 0; unit < layout.units(); ++unit)
      if (const int own = buffers.of_unit[unit]; own >= 0)
        out.gather_buffers[own] = round_up(elements_of(unit) * wire, page);
  }
  for (int unit = 0; unit < layout.units(); ++unit)
    out.gradients[gradient_buffer_of(unit, layout.layers)] =
        round_up(layout.gradient_elements[unit] * fp32, page);
  out.accumulators = round_up(layout.slice_elements * fp32 * lanes.accumulators(), page);
  std::int64_t largest = 0;
  for (const StoredSlice& s : layout.slices)
    if (!s.frozen) largest = std::max(largest, s.stride);
  out.added_at_once = lanes.added_at_once(largest);
  out.lane_scratch = out.added_at_once * fp32 * lanes.temporaries();
  out.published_is_symmetric = mesh.split_optimizer;
  if (mesh.split_optimizer || (mesh.group == 1 && policy.parameters != DType::fp32))
    out.published = round_up(layout.slice_elements * wire, page);
  out.frozen = frozen_plan(layout, policy).bytes;

  out.parameters = layout.arena_elements * fp32;
  if (mesh.split_optimizer) out.sums = layout.arena_elements * fp32;
  out.scratch = comm::Communicator::largest_reduction * fp32 * lanes.final_temporaries();
  return out;
}

std::int64_t MemoryPlan::symmetric_bytes() const {
  return std::accumulate(gather_buffers.begin(), gather_buffers.end(), std::int64_t{0}) +
         std::accumulate(std::begin(gradients), std::end(gradients), std::int64_t{0}) + accumulators +
         (published_is_symmetric ? published : 0);
}

std::int64_t MemoryPlan::own_bytes() const {
  constexpr std::int64_t line = tensor::Arena::alignment;
  return round_up(parameters, line) + round_up(sums, line) + round_up(lane_scratch, line) +
         round_up(scratch, line) + frozen + (published_is_symmetric ? 0 : published);
}

}  // namespace holdfast::shard
