#include "src/cuda/attention/attention_graph.hpp"

#include <fmt/core.h>

#include <utility>

namespace holdfast::cuda {

namespace {

using Tensor = CudnnGraph::Tensor;

constexpr auto bf16 = CUDNN_DATA_BFLOAT16;
constexpr auto fp32 = CUDNN_DATA_FLOAT;

/// A graph of a part and the shapes that recur in it.
struct Builder {
  const PartLayout& layout;
  const AttentionStrides& strides;
  CudnnGraph graph;
  CudnnDims scores, per_query;

  Builder(const PartLayout& part_layout, const AttentionStrides& part_strides)
      : layout(part_layout),
        strides(part_strides),
        scores{layout.part().rows, layout.heads(), layout.shape().sequence, layout.shape().sequence},
        per_query{layout.part().rows, layout.heads(), layout.shape().sequence, 1} {}

  Tensor at(std::int64_t uid, const Placement& placement, cudnnDataType_t type) {
    return graph.tensor(uid, placement.dims, placement.strides, type);
  }
  Tensor pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, const CudnnDims& dims) {
    return graph.pointwise(mode, x, b, graph.inner(dims, fp32));
  }
  /// x where the query may look at the key: not behind the query, not before its document. Else the masked
  /// score.
  Tensor masked(Tensor x) {
    const Tensor out_of_sight = graph.scalar(uid_masked);
    const auto place = [&](int axis) { return graph.place(x, axis, graph.inner(scores, CUDNN_DATA_INT32)); };
    const auto keep = [&](Tensor larger, Tensor smaller) {
      const Tensor condition = graph.at_least(larger, smaller, graph.inner(scores, CUDNN_DATA_BOOLEAN));
      x = graph.select(condition, x, out_of_sight, graph.inner(scores, fp32));
    };
    if (layout.shape().documents) {
      const Tensor key = place(3);
      keep(key, at(uid_starts, layout.starts(), CUDNN_DATA_INT32));
    }
    const Tensor query = place(2), key = place(3);
    keep(query, key);
    return x;
  }
  std::string name(const char* pass) const {
    const AttentionShape& s = layout.shape();
    return fmt::format("attention {} ({} rows of {} tokens, {} heads, {} key heads of {}{})", pass,
                       layout.part().rows, s.sequence, layout.heads(), layout.part().kv_heads, s.head_size,
                       s.documents ? ", documents" : "");
  }
};

}  // namespace

CudnnPlan attention_forward_plan(const PartLayout& layout, const AttentionStrides& strides,
                                 const CudnnDescriptor& device) {
  Builder b(layout, strides);
  CudnnGraph& g = b.graph;
  const Tensor q = b.at(uid_queries, layout.queries(strides.qkv), bf16),
               k = b.at(uid_keys, layout.keys(strides.qkv).transposed(), bf16),
               v = b.at(uid_values, layout.values(strides.qkv), bf16), scale = g.scalar(uid_scale);
  const Tensor score =
      b.masked(b.pointwise(CUDNN_POINTWISE_MUL, g.matmul(q, k, g.inner(b.scores, fp32)), scale, b.scores));
  const Tensor top = g.reduce(CUDNN_REDUCE_TENSOR_MAX, score, g.inner(b.per_query, fp32));
  const Tensor power = g.pointwise(
      CUDNN_POINTWISE_EXP, b.pointwise(CUDNN_POINTWISE_SUB, score, top, b.scores), g.inner(b.scores, fp32));
  const Tensor sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, power, g.inner(b.per_query, fp32));
  g.pointwise(CUDNN_POINTWISE_ADD, top, g.pointwise(CUDNN_POINTWISE_LOG, sum, g.inner(b.per_query, fp32)),
              b.at(uid_log_sum, layout.log_sums(), fp32));
  g.matmul(g.pointwise(CUDNN_POINTWISE_DIV, power, sum, g.inner(b.scores, bf16)), v,
           b.at(uid_out, layout.outputs(strides.out), bf16));
  return std::move(g).plan(device, true, b.name("forward"));
}

CudnnPlan attention_backward_plan(const PartLayout& layout, const AttentionStrides& strides,
                                  bool deterministic, const CudnnDescriptor& device) {
  Builder b(layout, strides);
  CudnnGraph& g = b.graph;
  const Placement keys = layout.keys(strides.qkv);
  const Tensor q = b.at(uid_queries, layout.queries(strides.qkv), bf16),
               k = b.at(uid_keys, keys.transposed(), bf16),
               v = b.at(uid_values, layout.values(strides.qkv).transposed(), bf16),
               out = b.at(uid_out, layout.outputs(strides.out), bf16),
               d_out = b.at(uid_d_out, layout.outputs(strides.d_out), bf16),
               log_sum = b.at(uid_log_sum, layout.log_sums(), fp32), scale = g.scalar(uid_scale);
  const CudnnDims queries = layout.queries(strides.qkv).dims;
  const std::int64_t s = layout.shape().sequence;
  const CudnnDims transposed{b.scores[1] * s * s, s * s, 1, s};

  const Tensor product = b.pointwise(CUDNN_POINTWISE_MUL, d_out, out, queries);
  const Tensor mean =
      g.pointwise(CUDNN_POINTWISE_MUL, g.reduce(CUDNN_REDUCE_TENSOR_ADD, product, g.inner(b.per_query, fp32)),
                  g.scalar(uid_one), g.tensor(uid_mean, b.per_query, packed_strides(b.per_query), fp32));

  // Probabilities again, from the stored log of their sum.
  Tensor x = b.pointwise(CUDNN_POINTWISE_MUL, g.matmul(q, k, g.inner(b.scores, fp32)), scale, b.scores);
  x = b.masked(b.pointwise(CUDNN_POINTWISE_SUB, x, log_sum, b.scores));
  const Tensor p = g.pointwise(CUDNN_POINTWISE_EXP, x, g.inner(b.scores, fp32));

  // Sums over queries, then over the query heads of a key head: those sums are rounded to bf16 before they
  // are added, since the engines' kernels store bf16 whatever type the tensor between is said to have.
  const auto over_queries = [&](Tensor transposed_weights, Tensor rows, std::int64_t uid,
                                const Placement& placement) {
    const Tensor result = b.at(uid, placement, bf16);
    if (layout.shape().group() == 1)
      g.matmul(transposed_weights, rows, result);
    else
      g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.matmul(transposed_weights, rows, g.inner(queries, bf16)), result);
  };
  over_queries(g.reshape(p, g.inner(b.scores, transposed, bf16)), d_out, uid_d_values,
               layout.values(strides.d_qkv));

  x = b.pointwise(CUDNN_POINTWISE_SUB, g.matmul(d_out, v, g.inner(b.scores, fp32)), mean, b.scores);
  x = b.pointwise(CUDNN_POINTWISE_MUL, x, p, b.scores);
  const Tensor d_score = g.pointwise(CUDNN_POINTWISE_MUL, x, scale, g.inner(b.scores, bf16));
  over_queries(g.reshape(d_score, g.inner(b.scores, transposed, bf16)), q, uid_d_keys,
               layout.keys(strides.d_qkv));

  const Tensor key_rows = g.reshape(k, g.inner(keys.dims, keys.strides, bf16));
  const Tensor d_queries = b.at(uid_d_queries, layout.queries(strides.d_qkv), bf16);
  if (deterministic) {
    g.matmul(d_score, key_rows, d_queries);
  } else {
    const Tensor sums = g.tensor(uid_d_query_sums, queries, packed_strides(queries), fp32);
    g.pointwise(CUDNN_POINTWISE_IDENTITY, g.matmul(d_score, key_rows, sums), d_queries);
  }
  return std::move(g).plan(device, deterministic, b.name("backward"));
}

}  // namespace holdfast::cuda
