// Causal attention on the CPU, a strip of scores at a time: 64 queries of one head against the keys before
// them. The strip stays in the cache, its softmax is exact; the backward pass computes it again from the
// stored log-sum-exp.
#include <cblas.h>

#include <cmath>
#include <cstring>

#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

constexpr std::int64_t block =
    64;  // queries per strip: orders the additions of key gradients, part of the numerics identity

/// c = alpha * op(a) op(b) (+ c)
void product(Mat c, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b, float alpha, float beta) {
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(c.rows), static_cast<blasint>(c.cols),
              static_cast<blasint>(transpose_a ? a.rows : a.cols), alpha, a.data,
              static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), beta, c.data,
              static_cast<blasint>(c.stride));
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

/// Where the parts of one head of one row lie.
struct Head {
  const Attention& a;
  std::int64_t first;  ///< token at which the row begins
  std::int64_t head, group;
  float scale;

  Head(const Attention& attention, std::int64_t row, std::int64_t h)
      : a(attention),
        first(row * a.sequence),
        head(h),
        group(h / (a.heads / a.kv_heads)),
        scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_size)))) {}
  template <class M>
  M part(M packed, std::int64_t index, std::int64_t low, std::int64_t count) const {
    return packed.rows_at(first + low, count).cols_at(index * a.head_size, a.head_size);
  }
  template <class M>
  M query(M qkv, std::int64_t low, std::int64_t n) const {
    return part(qkv, head, low, n);
  }
  template <class M>
  M key(M qkv, std::int64_t low, std::int64_t n) const {
    return part(qkv, a.heads + group, low, n);
  }
  template <class M>
  M value(M qkv, std::int64_t low, std::int64_t n) const {
    return part(qkv, a.heads + a.kv_heads + group, low, n);
  }
  template <class M>
  M output(M out, std::int64_t low, std::int64_t n) const {
    return part(out, head, low, n);
  }
  std::int64_t document_start(std::int64_t place) const {
    return a.documents.start == nullptr ? 0 : a.documents.start[first + place];
  }
  float& log_sum(std::int64_t place) const { return a.log_sum[head * a.qkv.rows + first + place]; }
};

/// Queries [low, end) of a row and the first key any of them looks at.
struct Strip {
  std::int64_t low, end, key;
  Strip(const Head& head, std::int64_t index)
      : low(index * block), end(std::min<std::int64_t>(head.a.sequence, low + block)), key(low) {
    for (std::int64_t i = low; i < end; ++i) key = std::min(key, head.document_start(i));
  }
  std::int64_t queries() const { return end - low; }
  std::int64_t keys() const { return end - key; }
};

std::int64_t strips_of(const Attention& a) { return (a.sequence + block - 1) / block; }

void check(const Attention& a) {
  expects(a.sequence > 0 && a.qkv.rows % a.sequence == 0, "attention: whole rows");
  expects(a.heads % a.kv_heads == 0, "attention: key heads divide query heads");
  expects(a.qkv.cols == static_cast<std::int64_t>(a.heads + 2 * a.kv_heads) * a.head_size,
          "attention: packed columns");
  expects(a.out.cols == static_cast<std::int64_t>(a.heads) * a.head_size, "attention: output columns");
  expects(a.workspace != nullptr && a.log_sum != nullptr, "attention: workspace and log_sum are given");
}

}  // namespace

std::int64_t CpuKernels::workspace(const Attention& a) const { return 2 * block * a.sequence * threads_; }

void CpuKernels::attention(Stream&, const Attention& a) {
  check(a);
  const std::int64_t rows = a.qkv.rows / a.sequence, strips = strips_of(a);
  run_tasks(rows * a.heads * strips, [&](std::int64_t task, int thread) {
    const Head head(a, task / strips / a.heads, task / strips % a.heads);
    const Strip strip(head, strips - 1 - task % strips);  // long strips first: better balance
    const Mat p = tensor::dense(a.workspace + thread * 2 * block * a.sequence, strip.queries(), strip.keys());
    product(p, head.query(a.qkv, strip.low, strip.queries()), false, head.key(a.qkv, strip.key, strip.keys()),
            true, head.scale, 0.0f);
    for (std::int64_t i = strip.low; i < strip.end; ++i)
      head.log_sum(i) =
          softmax(p.row(i - strip.low), head.document_start(i) - strip.key, i + 1 - strip.key, strip.keys());
    product(head.output(a.out, strip.low, strip.queries()), p, false,
            head.value(a.qkv, strip.key, strip.keys()), false, 1.0f, 0.0f);
  });
}

/// One task per key/value head of a row: it owns that head's gradients and adds to them query head by query
/// head, strip by strip, in this order.
void CpuKernels::attention_backward(Stream&, const Attention& a, const AttentionGradient& g) {
  check(a);
  const std::int64_t rows = a.qkv.rows / a.sequence, group = a.heads / a.kv_heads;
  run_tasks(rows * a.kv_heads, [&](std::int64_t task, int thread) {
    const std::int64_t row = task / a.kv_heads, kv = task % a.kv_heads;
    float* scratch = a.workspace + thread * 2 * block * a.sequence;
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const Head head(a, row, h);
      if (h == kv * group)
        for (const Mat& d : {head.key(g.d_qkv, 0, a.sequence), head.value(g.d_qkv, 0, a.sequence)})
          for (std::int64_t i = 0; i < d.rows; ++i) std::fill(d.row(i), d.row(i) + d.cols, 0.0f);
      for (std::int64_t s = 0; s < strips_of(a); ++s) {
        const Strip strip(head, s);
        const std::int64_t queries = strip.queries(), keys = strip.keys();
        const Mat p = tensor::dense(scratch, queries, keys),
                  ds = tensor::dense(scratch + block * a.sequence, queries, keys);
        const ConstMat q = head.query(a.qkv, strip.low, queries), k = head.key(a.qkv, strip.key, keys);
        const ConstMat v = head.value(a.qkv, strip.key, keys),
                       d_out = head.output(g.d_out, strip.low, queries);
        const ConstMat out = head.output(ConstMat(a.out), strip.low, queries);
        product(p, q, false, k, true, head.scale, 0.0f);
        product(ds, d_out, false, v, true, 1.0f, 0.0f);
        for (std::int64_t i = 0; i < queries; ++i) {
          const std::int64_t place = strip.low + i;
          softmax_again(p.row(i), head.document_start(place) - strip.key, place + 1 - strip.key, keys,
                        head.log_sum(place));
          softmax_gradient(ds.row(i), p.row(i), keys, row_dot(d_out.row(i), out.row(i), a.head_size),
                           head.scale);
        }
        product(head.query(g.d_qkv, strip.low, queries), ds, false, k, false, 1.0f, 0.0f);
        product(head.key(g.d_qkv, strip.key, keys), ds, true, q, false, 1.0f, 1.0f);
        product(head.value(g.d_qkv, strip.key, keys), p, true, d_out, false, 1.0f, 1.0f);
      }
    }
  });
}

}  // namespace holdfast::kernels
