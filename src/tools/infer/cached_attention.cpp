#include "src/tools/infer/cached_attention.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::infer {

using kernels::rounded;
using tensor::to_float;

namespace {

/// scores[p] = scale * query . key of token p
template <class T>
HOLDFAST_VECTOR_WIDTHS void scores_of(float* scores, const T* query, const T* keys, std::int64_t stride,
                                      std::int64_t tokens, std::int64_t n, float scale) {
  for (std::int64_t p = 0; p < tokens; ++p) scores[p] = kernels::dot(query, keys + p * stride, n) * scale;
}

HOLDFAST_VECTOR_WIDTHS void softmax(float* scores, std::int64_t n) {
  const float inverse = 1.0f / kernels::exponentials(scores, n, kernels::largest(scores, n));
  for (std::int64_t p = 0; p < n; ++p) scores[p] *= inverse;
}

/// sum[i] = the sum over tokens of weight * value, oldest first
template <class T>
HOLDFAST_VECTOR_WIDTHS void weighted(float* sum, const float* weights, const T* values, std::int64_t stride,
                                     std::int64_t tokens, std::int64_t n) {
  std::fill(sum, sum + n, 0.0f);
  for (std::int64_t p = 0; p < tokens; ++p) {
    const T* value = values + p * stride;
    const float weight = weights[p];
    for (std::int64_t i = 0; i < n; ++i) sum[i] += weight * to_float(value[i]);
  }
}

template <class T>
void attend_as(const CachedAttention& a, std::int64_t task) {
  const std::int64_t row = task / a.kv_heads, kv = task % a.kv_heads, group = a.heads / a.kv_heads;
  const std::int64_t end = a.key_values.rows - a.queries.rows + row + 1;
  const std::int64_t first = a.window > 0 ? std::max<std::int64_t>(0, end - a.window) : 0;
  const std::int64_t tokens = end - first, n = a.head_size, stride = a.key_values.stride;
  const T *keys = a.key_values.row<const T>(first) + kv * n, *values = keys + a.kv_heads * n;
  std::vector<float> scores(tokens), sum(as_size(n));
  for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head) {
    scores_of(scores.data(), a.queries.row<const T>(row) + head * n, keys, stride, tokens, n,
              a.scale > 0 ? a.scale : 1.0f / std::sqrt(static_cast<float>(n)));
    softmax(scores.data(), tokens);
    weighted(sum.data(), scores.data(), values, stride, tokens, n);
    T* out = a.out.row<T>(row) + head * n;
    std::ranges::transform(sum, out, [](float x) { return rounded<T>(x); });
  }
}

}  // namespace

void attend(const CachedAttention& attention, std::int64_t task) {
  kernels::with_type(attention.out.type, [&]<class T>() { attend_as<T>(attention, task); });
}

}  // namespace holdfast::infer
