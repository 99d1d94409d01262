// RMS norm with its fused residual on the CPU, and the sums over tokens that gradients of gains and biases
// are.
#include <cmath>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

// "ivdep": results lie where an operand lies or apart from it, never shifted.

constexpr std::int64_t token_block =
    64;  // tokens summed before they join the total: part of the numerics identity

template <class T>
HOLDFAST_VECTOR_WIDTHS void add_rows(T* sum, const T* residual, const T* branch, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) sum[i] = rounded<T>(to_float(residual[i]) + to_float(branch[i]));
}

template <class T>
HOLDFAST_VECTOR_WIDTHS float square_row(const T* x, std::int64_t n) {
  return dot(x, x, n);
}

template <class T>
HOLDFAST_VECTOR_WIDTHS void scale_row(T* out, const T* x, const T* gain, float inverse_rms, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = rounded<T>(to_float(x[i]) * inverse_rms * to_float(gain[i]));
}

/// d_x (+)= r * gain * dy - x * r^3 / n * sum(gain * dy * x)
template <class T>
HOLDFAST_VECTOR_WIDTHS void norm_row_backward(T* d_x, const T* x, const T* dy, const T* gain, std::int64_t n,
                                              float r, Write write) {
  float lane[sum_lanes] = {};
  std::int64_t i = 0;
  for (; i + sum_lanes <= n; i += sum_lanes)
    for (int l = 0; l < sum_lanes; ++l)
      lane[l] += to_float(gain[i + l]) * to_float(dy[i + l]) * to_float(x[i + l]);
  for (int l = 0; i + l < n; ++l) lane[l] += to_float(gain[i + l]) * to_float(dy[i + l]) * to_float(x[i + l]);
  const float pull = merge_lanes(lane) * r * r * r / static_cast<float>(n);
  if (write == Write::add) {
#pragma GCC ivdep
    for (i = 0; i < n; ++i)
      d_x[i] =
          rounded<T>(to_float(d_x[i]) + (r * (to_float(gain[i]) * to_float(dy[i])) - to_float(x[i]) * pull));
  } else {
#pragma GCC ivdep
    for (i = 0; i < n; ++i)
      d_x[i] = rounded<T>(r * (to_float(gain[i]) * to_float(dy[i])) - to_float(x[i]) * pull);
  }
}

template <class T>
HOLDFAST_VECTOR_WIDTHS void add_gain_row(float* part, const T* x, const T* dy, float r, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t c = 0; c < n; ++c) part[c] += to_float(dy[c]) * (to_float(x[c]) * r);
}

template <class T>
HOLDFAST_VECTOR_WIDTHS void add_row(float* part, const T* x, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t c = 0; c < n; ++c) part[c] += to_float(x[c]);
}

std::int64_t blocks_of(std::int64_t tokens) { return (tokens + token_block - 1) / token_block; }

}  // namespace

void CpuKernels::add(Stream&, Mat out, ConstMat a, ConstMat b) {
  expects(a.rows == out.rows && b.rows == out.rows && a.cols == out.cols && b.cols == out.cols,
          "add: all matrices are alike");
  with_type(out.type, [&]<class T>() {
    run_parts(out.rows, out.cols, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t t = first; t < end; ++t)
        add_rows(out.row<T>(t), a.row<const T>(t), b.row<const T>(t), out.cols);
    });
  });
}

void CpuKernels::norm(Stream& stream, const Norm& n) {
  const std::int64_t d = n.residual.cols;
  with_type(n.out.type, [&]<class T>() {
    const T* gain = n.gain.row<const T>(0);
    run_parts(n.residual.rows, 2 * d, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t t = first; t < end; ++t) {
        const T* x = n.residual.row<const T>(t);
        if (n.branch) {
          add_rows(n.sum.row<T>(t), x, n.branch.row<const T>(t), d);
          x = n.sum.row<T>(t);
        }
        n.inverse_rms[t] = 1.0f / std::sqrt(square_row(x, d) / static_cast<float>(d) + n.epsilon);
        scale_row(n.out.row<T>(t), x, gain, n.inverse_rms[t], d);
      }
    });
  });
  if (n.quantize != nullptr) quantize(stream, n.out, *n.quantize);
}

void CpuKernels::norm_backward(Stream&, const NormGradient& g) {
  const std::int64_t d = g.sum.cols, blocks = blocks_of(g.sum.rows);
  float* parts = g.d_gain == nullptr ? nullptr : room_for_parts(blocks * d);
  with_type(g.sum.type, [&]<class T>() {
    const T* gain = g.gain.row<const T>(0);
    run_tasks(blocks, [&](std::int64_t block, int) {
      float* part = parts == nullptr ? nullptr : parts + block * d;
      if (part != nullptr) std::fill(part, part + d, 0.0f);
      const std::int64_t first = block * token_block, end = std::min(g.sum.rows, first + token_block);
      for (std::int64_t t = first; t < end; ++t) {
        const T *x = g.sum.row<const T>(t), *dy = g.d_out.row<const T>(t);
        const float r = g.inverse_rms[t];
        if (part != nullptr) add_gain_row(part, x, dy, r, d);  // first: d_sum may be one of its operands
        norm_row_backward(g.d_sum.row<T>(t), x, dy, gain, d, r, g.write);
      }
    });
  });
  if (g.d_gain != nullptr) total(g.d_gain, parts, blocks, d);
}

void CpuKernels::head_norm(Stream&, const HeadNorm& n) {
  const std::int64_t h = n.head_size, queries = n.heads, normed = queries + n.kv_heads;
  with_type(n.out.type, [&]<class T>() {
    const T *q_gain = n.q_gain.row<const T>(0), *k_gain = n.k_gain.row<const T>(0);
    run_parts(n.in.rows, 2 * n.in.cols, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t t = first; t < end; ++t) {
        const T* x = n.in.row<const T>(t);
        T* y = n.out.row<T>(t);
        for (std::int64_t i = 0; i < normed; ++i) {
          float& r = n.inverse_rms[t * normed + i];
          r = 1.0f / std::sqrt(square_row(x + i * h, h) / static_cast<float>(h) + n.epsilon);
          scale_row(y + i * h, x + i * h, i < queries ? q_gain : k_gain, r, h);
        }
        std::copy(x + normed * h, x + n.in.cols, y + normed * h);
      }
    });
  });
}

void CpuKernels::head_norm_backward(Stream&, const HeadNorm& n, const HeadNormGradient& g) {
  const std::int64_t h = n.head_size, queries = n.heads, normed = queries + n.kv_heads,
                     blocks = blocks_of(n.in.rows);
  float* const parts = room_for_parts(blocks * 2 * h);  // of queries' gain, then of keys'
  with_type(n.in.type, [&]<class T>() {
    const T *q_gain = n.q_gain.row<const T>(0), *k_gain = n.k_gain.row<const T>(0);
    run_tasks(blocks, [&](std::int64_t block, int) {
      float *const q_part = parts + block * h, *const k_part = q_part + blocks * h;
      std::fill(q_part, q_part + h, 0.0f);
      std::fill(k_part, k_part + h, 0.0f);
      const std::int64_t first = block * token_block, end = std::min(n.in.rows, first + token_block);
      for (std::int64_t t = first; t < end; ++t)
        for (std::int64_t i = 0; i < normed; ++i) {
          const bool query = i < queries;
          const T* x = n.in.row<const T>(t) + i * h;
          T* dy = g.d_qkv.row<T>(t) + i * h;
          const float r = n.inverse_rms[t * normed + i];
          add_gain_row(query ? q_part : k_part, x, dy, r, h);
          norm_row_backward(dy, x, dy, query ? q_gain : k_gain, h, r, Write::replace);
        }
    });
  });
  if (g.d_q_gain != nullptr) total(g.d_q_gain, parts, blocks, h);
  if (g.d_k_gain != nullptr) total(g.d_k_gain, parts + blocks * h, blocks, h);
}

void CpuKernels::column_sums(Stream&, float* out, ConstMat x) {
  const std::int64_t blocks = blocks_of(x.rows);
  float* parts = room_for_parts(blocks * x.cols);
  with_type(x.type, [&]<class T>() {
    run_tasks(blocks, [&](std::int64_t block, int) {
      float* part = parts + block * x.cols;
      std::fill(part, part + x.cols, 0.0f);
      const std::int64_t first = block * token_block, end = std::min(x.rows, first + token_block);
      for (std::int64_t t = first; t < end; ++t) add_row(part, x.row<const T>(t), x.cols);
    });
  });
  total(out, parts, blocks, x.cols);
}

float* CpuKernels::room_for_parts(std::int64_t count) {
  if (parts_.size() < as_size(count)) parts_.resize(count);
  return parts_.data();
}

/// Adds the blocks' sums in order, from zero.
void CpuKernels::total(float* out, const float* parts, std::int64_t blocks, std::int64_t cols) const {
  run_parts(cols, blocks, [&](std::int64_t low, std::int64_t end) {
    std::fill(out + low, out + end, 0.0f);
    for (std::int64_t block = 0; block < blocks; ++block)
      add_row(out + low, parts + block * cols + low, end - low);
  });
}

}  // namespace holdfast::kernels
