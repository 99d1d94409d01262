#include "launcher/plan/memory.hpp"

#include <algorithm>
#include <vector>

#include "launcher/plan/units.hpp"
#include "src/base/as_size.hpp"
#include "src/base/attention_parts.hpp"
#include "src/base/slice.hpp"
#include "src/config/architecture.hpp"
#include "src/config/kept_blocks.hpp"
#include "src/config/lane_plan.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::int64_t fp32 = 4;
constexpr std::int64_t page = 4096;           // buffers that other ranks read begin on one
constexpr std::int64_t cache_line = 64;       // as every buffer begins
constexpr std::int64_t unit_alignment = 512;  // elements, of a tensor in the buffer of its unit
constexpr std::int64_t gpu_reserve =
    1'500'000'000;  // CUDA context, workspaces of products: the upper end of what is reported

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// Elements of what a rank has room for; the same on all ranks, since slices of a tensor have equal room.
struct Elements {
  std::int64_t slice = 0;                      ///< its slices of all tensors
  std::int64_t largest = 0;                    ///< the largest of them
  std::int64_t optimized = 0;                  ///< what its optimizer updates
  std::int64_t frozen = 0, frozen_linear = 0;  ///< its slices of what is not trained; of linear layers
  std::vector<std::int64_t> units;             ///< whole units
  std::vector<std::int64_t> gradients;         ///< those of whole units
};

Elements elements_of(const config::ModelShape& model, int group, int replicas, bool split_optimizer) {
  Elements out;
  out.units.assign(as_size(model.layers) + 2, 0);
  out.gradients = out.units;
  std::vector<Slice> slices(out.units.size());  // of what is trained of each unit
  for (const auto& t : config::stored_tensors_of(model)) {
    const int cut_for = split_optimizer && !t.frozen ? replicas : 1;  // see src/shard/layout.cpp
    const std::int64_t slice = slice_stride(t.elements(), group, cut_for),
                       part = slice_part(slice, 1, replicas);
    const auto unit = as_size(t.unit);
    out.units[unit] = round_up(out.units[unit], unit_alignment) + slice * group;
    if (t.frozen) {
      (t.linear ? out.frozen_linear : out.frozen) += slice;
      continue;
    }
    out.gradients[unit] = round_up(out.gradients[unit], unit_alignment) + slice * group;
    if (slices[unit].count == 0) slices[unit].first = out.slice;
    slices[unit].count += slice;
    out.slice += slice;
    out.largest = std::max(out.largest, slice);
    out.optimized += split_optimizer ? part : slice;
  }
  for (const Slice& unit : slices)
    if (!split_optimizer)
      out.slice = std::max(out.slice, unit.first + slice_stride(unit.count, replicas) * replicas);
  return out;
}

/// Gather buffers: one each for embedding, head and kept blocks, and a ring for the other blocks,
/// with room for the one in use and those gathered ahead. Unsharded units need none.
std::int64_t gathered_bytes(const config::Shard& shard, const std::vector<std::int64_t>& units,
                            std::int64_t type_bytes, bool gathers) {
  if (!gathers) return 0;
  const auto bytes = [&](std::int64_t elements) { return round_up(elements * type_bytes, page); };
  const int layers = static_cast<int>(units.size()) - 2;
  const auto kept = config::kept_blocks(shard, layers);
  const auto own = static_cast<int>(std::count(kept.begin(), kept.end(), true));
  const int deepest = std::max(shard.prefetch_forward, shard.prefetch_backward);
  const int ahead = shard.gathered_limit > 0 ? std::min(deepest, shard.gathered_limit) : deepest;
  return bytes(units.front()) + bytes(units.back()) +
         (own + std::min(layers - own, 1 + ahead)) * bytes(units[1]);
}

/// Whole gradients of one micro-batch: embedding, head, and two blocks, of which one is reduced while the
/// other is computed.
std::int64_t gradient_bytes(const std::vector<std::int64_t>& units) {
  const auto bytes = [&](std::int64_t elements) { return round_up(elements * fp32, page); };
  const int blocks = std::min(2, static_cast<int>(units.size()) - 2);
  return bytes(units.front()) + bytes(units.back()) + blocks * bytes(units[1]);
}

}  // namespace

Memory memory_of(const config::RunConfig& config, const config::ModelShape& model,
                 const config::ClusterFacts& facts, int group, int replicas) {
  const bool split = config.shard.strategy == config::Strategy::hfsdp && replicas > 1;
  const std::int64_t type = bytes_of(config.precision.parameters);
  const Elements elements = elements_of(model, group, replicas, split);
  Memory out;
  out.state.parameters = elements.optimized * fp32;
  out.state.optimizer = 2 * elements.optimized * bytes_of(config.precision.moments);
  if (split || (group == 1 && config.precision.parameters == config::Precision::bf16))
    out.state.copies = round_up(elements.slice * type, page);
  const auto lanes = config::promises_of(config.rank).trains_as_set
                         ? config::LanePlan(config.train, replicas, group)
                         : config::LanePlan(replicas * group, replicas, replicas, group);
  out.state.accumulators = round_up(elements.slice * fp32 * lanes.accumulators(), page) +
                           lanes.added_at_once(elements.largest) * fp32 * lanes.temporaries() +
                           (split ? elements.optimized * fp32 : 0);
  const bool coded = config.lora.rank > 0 && config.lora.base != config::Base::parameters;
  out.gathered = gathered_bytes(config.shard, elements.units, type, group > 1 || coded);
  out.gradients = gradient_bytes(elements.gradients);
  // Codes of one or half a byte, and a scale for each 64 (src/base/block_code.hpp).
  const config::Base base = config.lora.rank > 0 ? config.lora.base : config::Base::parameters;
  const std::int64_t linear = elements.frozen_linear;
  out.state.frozen =
      round_up(elements.frozen * type + (base == config::Base::parameters ? linear * type
                                         : base == config::Base::int8     ? linear + linear / 16
                                                                          : linear / 2 + linear / 16),
               cache_line);
  out.activations = config::activation_bytes(model, config::compute_options_of(config));
  if (facts.gpu != "none") {
    out.reserved = gpu_reserve;
    out.attention = backward_workspace({config.train.micro_batch, config.train.sequence, model.heads,
                                        model.kv_heads, model.head_size(), false},
                                       config.train.deterministic);
    if (config.shard.offload == config::Offload::moments) out.offloaded = out.state.optimizer;
  }
  out.capacity = facts.gpu_memory_bytes;
  return out;
}

}  // namespace holdfast::launcher
