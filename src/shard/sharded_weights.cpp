#include "src/shard/sharded_weights.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/error.hpp"

namespace holdfast::shard {
namespace {
enum Buffer : std::size_t { embedding, blocks, head, buffers };
}  // namespace

ShardedWeights::ShardedWeights(const Layout& layout, const LanePlan& plan, comm::Communicator& shard_group,
                               comm::Communicator& replicas, kernels::Kernels& kernels,
                               tensor::Stream& stream, tensor::Arena& arena)
    : layout_(layout),
      shard_group_(shard_group),
      replicas_(replicas),
      kernels_(kernels),
      stream_(stream),
      arena_(arena) {
  const Mesh& mesh = layout.mesh;
  expects(shard_group.size() == mesh.group && shard_group.rank() == mesh.member(),
          "the shard group of the mesh");
  expects(replicas.size() == mesh.replicas && replicas.rank() == mesh.replica(), "the replicas of the mesh");
  for (int step = 0; step < plan.micro_steps(mesh.replica()); ++step)
    additions_.push_back(plan.additions(mesh.replica(), step));
  final_additions_ = plan.final_additions();
  for (int g = 0; g < mesh.replicas; ++g) nodes_of_.push_back(static_cast<int>(plan.nodes(g).size()));

  parameters_ = arena.plan<float>("parameters", layout.arena_elements);
  accumulators_ =
      arena.plan<float>("gradient accumulators", layout.arena_elements * plan.slots(mesh.replica()));
  merge_scratch_ = arena.plan<float>("tree nodes being added",
                                     comm::Communicator::largest_fold * slots_of(final_additions_));
  const std::size_t last = layout.unit_elements.size() - 1;
  const std::int64_t block = *std::max_element(
      layout.unit_elements.begin() + 1, layout.unit_elements.begin() + static_cast<std::ptrdiff_t>(last));
  const std::int64_t sizes[buffers] = {layout.unit_elements[0], block, layout.unit_elements[last]};
  const char* const names[buffers] = {"embedding", "block", "head"};
  for (std::size_t b = 0; b < buffers; ++b) {
    if (mesh.group > 1) gathered_.push_back(arena.plan<float>(std::string("gathered ") + names[b], sizes[b]));
    leaf_.push_back(arena.plan<float>(std::string("leaf gradient of ") + names[b], sizes[b]));
  }
  resident_.assign(buffers, -1);
  stored_of_.resize(layout.unit_elements.size());
  for (std::size_t t = 0; t < layout.slices.size(); ++t)
    stored_of_[static_cast<std::size_t>(layout.slices[t].unit)].push_back(static_cast<int>(t));
}

std::size_t ShardedWeights::buffer_of(int unit) const {
  if (unit == 0) return embedding;
  return static_cast<std::size_t>(unit) + 1 == layout_.unit_elements.size() ? head : blocks;
}

std::span<const comm::Extent> ShardedWeights::extents(int unit, float* buffer) {
  extents_.clear();
  for (int stored : stored_of_[static_cast<std::size_t>(unit)]) {
    const StoredSlice& s = layout_.slices[static_cast<std::size_t>(stored)];
    extents_.push_back({buffer + s.unit_offset, s.elements});
  }
  return extents_;
}

void ShardedWeights::begin_step() { std::fill(resident_.begin(), resident_.end(), -1); }

void ShardedWeights::acquire(int unit) {
  if (layout_.mesh.group == 1 || resident_[buffer_of(unit)] == unit) return;
  for (int stored : stored_of_[static_cast<std::size_t>(unit)]) {
    const StoredSlice& s = layout_.slices[static_cast<std::size_t>(stored)];
    std::memcpy(gathered(unit) + s.unit_offset + s.slice.first, parameters() + s.offset,
                static_cast<std::size_t>(s.slice.count) * sizeof(float));
  }
  shard_group_.all_gather(extents(unit, gathered(unit)));
  resident_[buffer_of(unit)] = unit;
}

const float* ShardedWeights::weight(int stored) {
  const StoredSlice& s = layout_.slices[static_cast<std::size_t>(stored)];
  if (layout_.mesh.group == 1) return parameters() + s.offset;
  expects(resident_[buffer_of(s.unit)] == s.unit, "a weight of an acquired unit");
  return gathered(s.unit) + s.unit_offset;
}

float* ShardedWeights::gradient(int stored) {
  const StoredSlice& s = layout_.slices[static_cast<std::size_t>(stored)];
  return arena_.at(leaf_[buffer_of(s.unit)]) + s.unit_offset;
}

void ShardedWeights::reduce(int unit) {
  const auto& stored = stored_of_[static_cast<std::size_t>(unit)];
  shard_group_.fold_leaves(
      extents(unit, arena_.at(leaf_[buffer_of(unit)])),
      [&](int tensor, std::int64_t first, std::int64_t count, std::span<const float* const> leaves) {
        const StoredSlice& s =
            layout_.slices[static_cast<std::size_t>(stored[static_cast<std::size_t>(tensor)])];
        add_up(additions_[micro_step_], accumulator(0) + s.offset + first, layout_.arena_elements, count,
               leaves);
      });
}

void ShardedWeights::finish_step() {
  if (final_additions_.size() == 1) return;  // one replica, one node: it is the sum
  nodes_.clear();
  for (int k = 0; k < nodes_of_[static_cast<std::size_t>(layout_.mesh.replica())]; ++k)
    nodes_.push_back(accumulator(k));
  // My part of the sum replaces my part of node 0, which nobody else reads.
  const std::int64_t mine =
      slice_of(layout_.arena_elements, layout_.mesh.replicas, layout_.mesh.replica()).first;
  float* scratch = arena_.at(merge_scratch_);
  replicas_.exchange_nodes(
      nodes_, nodes_of_, layout_.arena_elements,
      [&](int, std::int64_t first, std::int64_t count, std::span<const float* const> nodes) {
        add_up(final_additions_, scratch, comm::Communicator::largest_fold, count, nodes);
        std::memcpy(accumulator(0) + mine + first, scratch, static_cast<std::size_t>(count) * sizeof(float));
      });
  const comm::Extent sum[] = {{accumulator(0), layout_.arena_elements}};
  replicas_.all_gather(sum);  // every replica updates all that it holds
}

void ShardedWeights::add_up(const std::vector<LaneOp>& additions, float* base, std::int64_t stride,
                            std::int64_t count, std::span<const float* const> sources) {
  for (std::size_t i = 0; i < additions.size();) {
    const LaneOp& op = additions[i];
    float* sum = base + op.slot * stride;
    if (op.kind == LaneOp::Kind::merge) {
      const float* right = sum + stride;
      kernels_.fold(stream_, sum, {&right, 1}, count, false);
      ++i;
      continue;
    }
    std::size_t end = i + 1;  // further leaves of the same lane go in the same pass
    while (end < additions.size() && additions[end].kind == LaneOp::Kind::add_leaf &&
           additions[end].slot == op.slot)
      ++end;
    kernels_.fold(stream_, sum, sources.subspan(static_cast<std::size_t>(op.leaf), end - i), count,
                  op.kind == LaneOp::Kind::copy_leaf);
    i = end;
  }
}

}  // namespace holdfast::shard
