#pragma once
// Causal attention as graphs of small operations in the form that cuDNN knows as flash attention and fuses
// into a few kernels. Nothing of the size of the scores leaves a kernel, but for their gradients when sums
// must have a fixed order.
#include <cstdint>

#include "src/cuda/attention/attention_plan.hpp"
#include "src/cuda/attention/cudnn_graph.hpp"

namespace holdfast::cuda {

/// Elements from a token to the next in the matrices of a call.
struct AttentionStrides {
  std::int64_t qkv = 0, out = 0, d_out = 0, d_qkv = 0;
  auto operator<=>(const AttentionStrides&) const = default;
};

/// What a run binds: the tensors of a part, at their PartLayout offsets, and scalars. log_sum is written
/// forward, read backward.
enum AttentionTensor : std::int64_t {
  uid_queries = 1,
  uid_keys,  ///< also transposed
  uid_values,
  uid_out,
  uid_log_sum,
  uid_starts,  ///< documents only
  uid_scale,   ///< of scores
  uid_masked,  ///< the score of a key that a query must not look at, see masked_score
  // Backward
  uid_d_out,
  uid_d_queries,
  uid_d_keys,
  uid_d_values,
  uid_one,           ///< 1
  uid_mean,          ///< scratch, fp32, a number per query and head: sum of d_out * out
  uid_d_query_sums,  ///< scratch, fp32, packed, [rows, heads, places, head size]; not when deterministic
};

/// Far below every score, and still exact when a kernel subtracts one from another: minus infinity would make
/// a block of keys that is masked as a whole, the first of a later document, NaN.
constexpr float masked_score = -1e30f;

CudnnPlan attention_forward_plan(const PartLayout& layout, const AttentionStrides& strides,
                                 const CudnnDescriptor& device);
CudnnPlan attention_backward_plan(const PartLayout& layout, const AttentionStrides& strides,
                                  bool deterministic, const CudnnDescriptor& device);

}  // namespace holdfast::cuda
