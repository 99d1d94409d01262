// SwiGLU on the CPU.
#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

// "ivdep": results lie where an operand lies or apart from it, never shifted.

template <class T>
HOLDFAST_VECTOR_WIDTHS void swiglu_row(T* out, const T* gate, const T* up, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = to_float(gate[i]), sigmoid = 1.0f / (1.0f + exponential(-g));
    out[i] = rounded<T>(g * sigmoid * to_float(up[i]));
  }
}

template <class T>
HOLDFAST_VECTOR_WIDTHS void swiglu_row_backward(T* d_gate, T* d_up, const T* d_out, const T* gate,
                                                const T* up, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = to_float(gate[i]), sigmoid = 1.0f / (1.0f + exponential(-g));
    const float silu = g * sigmoid, d = to_float(d_out[i]), u = to_float(up[i]);
    d_up[i] = rounded<T>(d * silu);
    d_gate[i] = rounded<T>(d * u * (sigmoid + silu * (1.0f - sigmoid)));
  }
}

}  // namespace

void CpuKernels::swiglu(Stream& stream, Mat out, ConstMat gate_up, const Quantize* q) {
  expects(gate_up.cols == 2 * out.cols && gate_up.rows == out.rows, "swiglu: gate_up is T x 2f");
  const std::int64_t f = out.cols;
  with_type(out.type, [&]<class T>() {
    run_parts(out.rows, 8 * f, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t t = first; t < end; ++t) {
        const T* gate = gate_up.row<const T>(t);
        swiglu_row(out.row<T>(t), gate, gate + f, f);
      }
    });
  });
  if (q != nullptr) quantize(stream, out, *q);
}

void CpuKernels::swiglu_backward(Stream&, Mat d_gate_up, ConstMat d_out, ConstMat gate_up) {
  expects(gate_up.cols == 2 * d_out.cols && d_gate_up.cols == gate_up.cols, "swiglu: gate_up is T x 2f");
  const std::int64_t f = d_out.cols;
  with_type(d_out.type, [&]<class T>() {
    run_parts(d_out.rows, 8 * f, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t t = first; t < end; ++t) {
        T* d_gate = d_gate_up.row<T>(t);
        const T* gate = gate_up.row<const T>(t);
        swiglu_row_backward(d_gate, d_gate + f, d_out.row<const T>(t), gate, gate + f, f);
      }
    });
  });
}

}  // namespace holdfast::kernels
