#include "src/kernels/cpu_attention_fp32.hpp"

#include <cblas.h>

#include "src/kernels/cpu_attention.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

/// c = alpha * op(a) op(b) (+ c)
void product(Mat c, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b, float alpha, float beta) {
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(c.rows), static_cast<blasint>(c.cols),
              static_cast<blasint>(transpose_a ? a.rows : a.cols), alpha, a.row<const float>(0),
              static_cast<blasint>(a.stride), b.row<const float>(0), static_cast<blasint>(b.stride), beta,
              c.row<float>(0), static_cast<blasint>(c.stride));
}

/// Exact softmax of s[low, high); zero elsewhere in [0, n). Returns the log of the sum of exponentials.
HOLDFAST_VECTOR_WIDTHS float softmax(float* s, std::int64_t low, std::int64_t high, std::int64_t n) {
  const float top = largest(s + low, high - low);
  const float sum = exponentials(s + low, high - low, top);
  const float inverse = 1.0f / sum;
  for (std::int64_t j = low; j < high; ++j) s[j] *= inverse;
  std::fill(s, s + low, 0.0f);
  std::fill(s + high, s + n, 0.0f);
  return top + static_cast<float>(std::log(static_cast<double>(sum)));
}

/// The softmax again, from its log-sum-exp.
HOLDFAST_VECTOR_WIDTHS void softmax_again(float* s, std::int64_t low, std::int64_t high, std::int64_t n,
                                          float log_sum) {
  for (std::int64_t j = low; j < high; ++j) s[j] = exponential(s[j] - log_sum);
  std::fill(s, s + low, 0.0f);
  std::fill(s + high, s + n, 0.0f);
}

HOLDFAST_VECTOR_WIDTHS float row_dot(const float* a, const float* b, std::int64_t n) { return dot(a, b, n); }

/// ds = p * (dp - mean) * scale
HOLDFAST_VECTOR_WIDTHS void softmax_gradient(float* dp, const float* p, std::int64_t n, float mean,
                                             float scale) {
  for (std::int64_t j = 0; j < n; ++j) dp[j] = p[j] * (dp[j] - mean) * scale;
}

}  // namespace

std::int64_t Fp32Attention::workspace(int threads) const {
  return 2 * block * a_.sequence * threads * std::int64_t{sizeof(float)};
}

std::int64_t Fp32Attention::strip_tasks() const { return rows_of(a_) * a_.heads * strips(); }

void Fp32Attention::strip(std::int64_t task, int thread) const {
  const Head head(a_, task / strips() / a_.heads, task / strips() % a_.heads);
  const Strip strip(head, strips() - 1 - task % strips(), block);
  const Mat p = tensor::dense(scratch(thread), strip.queries(), strip.keys());
  product(p, head.query(a_.qkv, strip.low, strip.queries()), false, head.key(a_.qkv, strip.key, strip.keys()),
          true, static_cast<float>(a_.score_scale()), 0.0f);
  for (std::int64_t i = strip.low; i < strip.end; ++i)
    head.log_sum(i) = softmax(p.row<float>(i - strip.low), head.document_start(i) - strip.key,
                              i + 1 - strip.key, strip.keys());
  product(head.output(a_.out, strip.low, strip.queries()), p, false,
          head.value(a_.qkv, strip.key, strip.keys()), false, 1.0f, 0.0f);
}

std::int64_t Fp32Attention::head_tasks() const { return rows_of(a_) * a_.kv_heads; }

void Fp32Attention::head_backward(const AttentionGradient& g, std::int64_t task, int thread) const {
  const std::int64_t row = task / a_.kv_heads, kv = task % a_.kv_heads, group = a_.heads / a_.kv_heads;
  const auto scale = static_cast<float>(a_.score_scale());
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    const Head head(a_, row, h);
    if (h == kv * group)
      for (const Mat& d : {head.key(g.d_qkv, 0, a_.sequence), head.value(g.d_qkv, 0, a_.sequence)})
        for (std::int64_t i = 0; i < d.rows; ++i) std::fill(d.row<float>(i), d.row<float>(i) + d.cols, 0.0f);
    for (std::int64_t s = 0; s < strips(); ++s) {
      const Strip strip(head, s, block);
      const std::int64_t queries = strip.queries(), keys = strip.keys();
      const Mat p = tensor::dense(scratch(thread), queries, keys),
                ds = tensor::dense(scratch(thread) + block * a_.sequence, queries, keys);
      const ConstMat q = head.query(a_.qkv, strip.low, queries), k = head.key(a_.qkv, strip.key, keys);
      const ConstMat v = head.value(a_.qkv, strip.key, keys),
                     d_out = head.output(g.d_out, strip.low, queries);
      const ConstMat out = head.output(ConstMat(a_.out), strip.low, queries);
      product(p, q, false, k, true, scale, 0.0f);
      product(ds, d_out, false, v, true, 1.0f, 0.0f);
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int64_t place = strip.low + i;
        softmax_again(p.row<float>(i), head.document_start(place) - strip.key, place + 1 - strip.key, keys,
                      head.log_sum(place));
        softmax_gradient(ds.row<float>(i), p.row<float>(i), keys,
                         row_dot(d_out.row<const float>(i), out.row<const float>(i), a_.head_size), scale);
      }
      product(head.query(g.d_qkv, strip.low, queries), ds, false, k, false, 1.0f, 0.0f);
      product(head.key(g.d_qkv, strip.key, keys), ds, true, q, false, 1.0f, 1.0f);
      product(head.value(g.d_qkv, strip.key, keys), p, true, d_out, false, 1.0f, 1.0f);
    }
  }
}

}  // namespace holdfast::kernels
