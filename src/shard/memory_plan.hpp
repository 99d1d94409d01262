#pragma once
// The buffers of a rank's shards as data: ShardedWeights plans exactly these in its arenas. Pure.
//
// Symmetric memory is read by other ranks and has the same buffers at the same offsets everywhere; the rest
// is the rank's own.
#include <cstdint>
#include <vector>

#include "src/config/lane_plan.hpp"
#include "src/shard/layout.hpp"
#include "src/shard/policy.hpp"

namespace holdfast::shard {

using config::LanePlan;

/// Gradients of a micro-batch: embedding and head have a buffer each (a tied embedding's lives from the head
/// to the end of the micro-batch), blocks take turns, so that one is reduced while the next is computed.
enum GradientBuffer : int { embedding_buffer, head_buffer, block_buffer, block_buffer_2, gradient_buffers };
GradientBuffer gradient_buffer_of(int unit, int layers);

/// Bytes of each buffer; 0: not needed.
struct MemoryPlan {
  // symmetric
  std::vector<std::int64_t> gather_buffers;       ///< see GatherBuffers
  std::int64_t gradients[gradient_buffers] = {};  ///< whole gradients of one micro-batch, fp32
  std::int64_t accumulators = 0;                  ///< LanePlan::accumulators() slice arenas, fp32
  std::int64_t published = 0;  ///< slice arena in the parameter type; symmetric under HFSDP only
  bool published_is_symmetric = false;
  std::int64_t frozen = 0;  ///< the frozen arena, see FrozenPlan (own)
  // own
  std::int64_t parameters = 0;  ///< optimizer arena, fp32 master
  std::int64_t sums = 0;        ///< optimizer arena of gradient sums, fp32, where accumulator 0 cannot be it
  std::int64_t added_at_once = 0;  ///< elements of a tensor that are added at a time; 0: all of it
  std::int64_t lane_scratch = 0;   ///< so many for each of LanePlan::temporaries(), fp32
  std::int64_t scratch = 0;        ///< partial sums being added

  /// What the two arenas plan.
  std::int64_t symmetric_bytes() const;
  std::int64_t own_bytes() const;
};
MemoryPlan memory_plan(const Layout& layout, const LanePlan& lanes, const Policy& policy);

}  // namespace holdfast::shard
