// Norm, rotary positions, SwiGLU and the embedding on the CPU.
#include <cmath>
#include <cstring>

#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

// "ivdep" below: results lie where an operand lies or apart from it, never shifted.

constexpr std::int64_t token_block =
    64;  // tokens summed before they join the total: part of the numerics identity
constexpr std::int64_t column_strip = 64;  // columns of one task of a sum over tokens

HOLDFAST_VECTOR_WIDTHS void add_rows(float* sum, const float* a, const float* b, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
}

/// Returns 1 / rms(x).
HOLDFAST_VECTOR_WIDTHS float norm_row(float* out, const float* x, const float* gain, std::int64_t n,
                                      float epsilon) {
  const float inverse_rms = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + epsilon);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * inverse_rms * gain[i];
  return inverse_rms;
}

/// d_x (+)= r * gain * dy - x * r^3 / n * sum(gain * dy * x)
HOLDFAST_VECTOR_WIDTHS void norm_row_backward(float* d_x, const float* x, const float* dy, const float* gain,
                                              std::int64_t n, float r, Write write) {
  float lane[sum_lanes] = {};
  std::int64_t i = 0;
  for (; i + sum_lanes <= n; i += sum_lanes)
    for (int l = 0; l < sum_lanes; ++l) lane[l] += gain[i + l] * dy[i + l] * x[i + l];
  for (int l = 0; i + l < n; ++l) lane[l] += gain[i + l] * dy[i + l] * x[i + l];
  const float pull = merge_lanes(lane) * r * r * r / static_cast<float>(n);
  if (write == Write::add) {
#pragma GCC ivdep
    for (i = 0; i < n; ++i) d_x[i] += r * (gain[i] * dy[i]) - x[i] * pull;
  } else {
#pragma GCC ivdep
    for (i = 0; i < n; ++i) d_x[i] = r * (gain[i] * dy[i]) - x[i] * pull;
  }
}

/// d_gain of `width` <= column_strip columns: sums of token_block tokens, then their sum, in order.
HOLDFAST_VECTOR_WIDTHS void gain_strip(float* d_gain, ConstMat x, ConstMat dy, const float* inverse_rms,
                                       std::int64_t width) {
  float total[column_strip] = {};
  for (std::int64_t first = 0; first < x.rows; first += token_block) {
    float part[column_strip] = {};
    for (std::int64_t t = first; t < std::min(x.rows, first + token_block); ++t) {
      const float *xt = x.row(t), *dt = dy.row(t);
      const float r = inverse_rms[t];
      for (std::int64_t c = 0; c < width; ++c) part[c] += dt[c] * (xt[c] * r);
    }
    for (std::int64_t c = 0; c < width; ++c) total[c] += part[c];
  }
  for (std::int64_t c = 0; c < width; ++c) d_gain[c] = total[c];
}

/// (a, b) turned by the angles whose cosines and sines are given.
HOLDFAST_VECTOR_WIDTHS void rotate(float* x, const float* cosine, const float* sine, std::int64_t half,
                                   std::int64_t heads, float direction) {
  for (std::int64_t h = 0; h < heads; ++h) {
    float *a = x + h * 2 * half, *b = a + half;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < half; ++i) {
      const float p = a[i], q = b[i], s = direction * sine[i];
      a[i] = p * cosine[i] - q * s;
      b[i] = q * cosine[i] + p * s;
    }
  }
}

HOLDFAST_VECTOR_WIDTHS void swiglu_row(float* out, const float* gate, const float* up, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float sigmoid = 1.0f / (1.0f + exponential(-gate[i]));
    out[i] = gate[i] * sigmoid * up[i];
  }
}

HOLDFAST_VECTOR_WIDTHS void swiglu_row_backward(float* d_gate, float* d_up, const float* d_out,
                                                const float* gate, const float* up, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float sigmoid = 1.0f / (1.0f + exponential(-gate[i]));
    const float silu = gate[i] * sigmoid, d = d_out[i], u = up[i];
    d_up[i] = d * silu;
    d_gate[i] = d * u * (sigmoid + silu * (1.0f - sigmoid));
  }
}

}  // namespace

void CpuKernels::norm(Stream&, const Norm& n) {
  const std::int64_t d = n.residual.cols;
  run_parts(n.residual.rows, 2 * d, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t t = first; t < end; ++t) {
      if (n.branch) add_rows(n.sum.row(t), n.residual.row(t), n.branch.row(t), d);
      const float* x = n.branch ? n.sum.row(t) : n.residual.row(t);
      n.inverse_rms[t] = norm_row(n.out.row(t), x, n.gain, d, n.epsilon);
    }
  });
}

void CpuKernels::norm_backward(Stream&, const NormGradient& g) {
  const std::int64_t d = g.sum.cols;
  run_parts(g.sum.rows, 4 * d, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t t = first; t < end; ++t)
      norm_row_backward(g.d_sum.row(t), g.sum.row(t), g.d_out.row(t), g.gain, d, g.inverse_rms[t], g.write);
  });
  run_parts((d + column_strip - 1) / column_strip, g.sum.rows * column_strip,
            [&](std::int64_t first, std::int64_t end) {
              for (std::int64_t strip = first; strip < end; ++strip) {
                const std::int64_t c = strip * column_strip, width = std::min(column_strip, d - c);
                gain_strip(g.d_gain + c, g.sum.cols_at(c, width), g.d_out.cols_at(c, width), g.inverse_rms,
                           width);
              }
            });
}

void CpuKernels::rope(Stream&, const Rope& r) {
  const std::int64_t half = r.head_size / 2, heads = r.heads + r.kv_heads;
  expects(r.cosine.cols == half && r.cosine.rows >= r.sequence, "rope: the table holds every position");
  run_parts(r.qkv.rows, heads * r.head_size, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t t = first; t < end; ++t) {
      const std::int64_t position =
          t % r.sequence - (r.documents.start == nullptr ? 0 : r.documents.start[t]);
      rotate(r.qkv.row(t), r.cosine.row(position), r.sine.row(position), half, heads,
             r.backward ? -1.0f : 1.0f);
    }
  });
}

void CpuKernels::swiglu(Stream&, Mat out, ConstMat gate_up) {
  expects(gate_up.cols == 2 * out.cols && gate_up.rows == out.rows, "swiglu: gate_up is T x 2f");
  const std::int64_t f = out.cols;
  run_parts(out.rows, 8 * f, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t t = first; t < end; ++t) swiglu_row(out.row(t), gate_up.row(t), gate_up.row(t) + f, f);
  });
}

void CpuKernels::swiglu_backward(Stream&, Mat d_gate_up, ConstMat d_out, ConstMat gate_up) {
  expects(gate_up.cols == 2 * d_out.cols && d_gate_up.cols == gate_up.cols, "swiglu: gate_up is T x 2f");
  const std::int64_t f = d_out.cols;
  run_parts(d_out.rows, 8 * f, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t t = first; t < end; ++t)
      swiglu_row_backward(d_gate_up.row(t), d_gate_up.row(t) + f, d_out.row(t), gate_up.row(t),
                          gate_up.row(t) + f, f);
  });
}

void CpuKernels::embed(Stream&, Mat out, ConstMat table, const std::int32_t* tokens) {
  run_parts(out.rows, out.cols, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t t = first; t < end; ++t) {
      if (tokens[t] < 0)
        std::fill(out.row(t), out.row(t) + out.cols, 0.0f);
      else
        std::memcpy(out.row(t), table.row(tokens[t]), static_cast<std::size_t>(out.cols) * sizeof(float));
    }
  });
}

void CpuKernels::embed_backward(Stream&, Mat d_table, ConstMat d_out, const std::int32_t* tokens,
                                Write write) {
  const std::int64_t d = d_table.cols;
  // A strip of columns per task: tokens that share a row of the table are added in their order, without
  // locks.
  run_parts((d + column_strip - 1) / column_strip, column_strip * (d_out.rows + d_table.rows / 4),
            [&](std::int64_t first, std::int64_t end) {
              const std::int64_t low = first * column_strip, high = std::min(d, end * column_strip);
              if (write == Write::replace)
                for (std::int64_t v = 0; v < d_table.rows; ++v)
                  std::fill(d_table.row(v) + low, d_table.row(v) + high, 0.0f);
              for (std::int64_t t = 0; t < d_out.rows; ++t)
                if (tokens[t] >= 0)
                  add_rows(d_table.row(tokens[t]) + low, d_table.row(tokens[t]) + low, d_out.row(t) + low,
                           high - low);
            });
}

}  // namespace holdfast::kernels
