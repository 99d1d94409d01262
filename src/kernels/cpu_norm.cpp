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
        norm_row_backward(g.d_sum.row<T>(t), x, dy, gain, d, r, g.write);
        if (part != nullptr) add_gain_row(part, x, dy, r, d);
      }
    });
  });
  if (g.d_gain != nullptr) total(g.d_gain, parts, blocks, d);
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
