// A block takes a piece of a row; a thread two packs of it, asked for before the first is used.
#include "src/cuda/kernels/swiglu.hpp"

#include <cmath>
#include <type_traits>

#include "src/base/error.hpp"
#include "src/cuda/kernels/quantize.hpp"
#include "src/cuda/simt/block_sum.hpp"
#include "src/cuda/simt/operands.hpp"

namespace holdfast::cuda {

namespace {

using kernels::Quantize;

constexpr int threads = 128, packs = 2;

/// Held at its value for -87 below that, where the reciprocal is still a normal number: so it needs no
/// branch. A NaN stays one.
HOLDFAST_DEVICE float sigmoid(float x) {
  const float denominator = 1.0f + expf(x < -87.0f ? 87.0f : -x);
#ifdef __CUDA_ARCH__
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(denominator));  // within 1 unit in the last place
  return __fmaf_rn(reciprocal, __fmaf_rn(-denominator, reciprocal, 1.0f), reciprocal);
#else
  return 1.0f / denominator;
#endif
}

/// Element of the row where a thread's pack k begins.
template <class P>
HOLDFAST_DEVICE std::int64_t place(int k, std::int64_t piece) {
  return ((piece * packs + k) * threads + threadIdx.x) * P::size;
}

struct Forward {
  void* out;
  const void* gate_up;
  void* copy;
  const float* copy_scale;
  unsigned* amax;
  std::int64_t out_stride, gate_up_stride, copy_stride, f;
  unsigned pieces;  ///< of a row
};

template <class T, class Copy, bool whole>
__global__ void __launch_bounds__(threads) swiglu_kernel(Forward a) {
  using P = Pack<T>;
  const std::int64_t row = blockIdx.x / a.pieces, piece = blockIdx.x % a.pieces;
  const T* const gate = static_cast<const T*>(a.gate_up) + row * a.gate_up_stride;
  T* const out = static_cast<T*>(a.out) + row * a.out_stride;
  P g[packs], u[packs];
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const std::int64_t i = place<P>(k, piece);
    g[k] = P::template load_at<whole>(gate, i, a.f);
    u[k] = P::template load_at<whole>(gate + a.f, i, a.f);
  }
  unsigned largest = 0;
  float copy_scale = 1;
  if constexpr (!std::is_void_v<Copy>) copy_scale = *a.copy_scale;
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const std::int64_t i = place<P>(k, piece);
    if (i >= a.f) continue;
    float y[P::size];
#pragma unroll
    for (int e = 0; e < P::size; ++e) y[e] = g[k].at(e) * sigmoid(g[k].at(e)) * u[k].at(e);
    const P result = P::of(y);
    result.template store<whole>(out + i, a.f - i);
    if (a.amax != nullptr) {
#pragma unroll
      for (int e = 0; e < P::size; ++e) {
        const unsigned size = size_bits(result.at(e));
        largest = size > largest ? size : largest;  // behind the row's end: silu(0) * 0
      }
    }
#pragma unroll
    for (int e = 0; e < P::size; ++e) y[e] = result.at(e) * copy_scale;
    if constexpr (!std::is_void_v<Copy>)
      Pack<Copy, P::size>::of(y).template store<whole>(static_cast<Copy*>(a.copy) + row * a.copy_stride + i,
                                                       a.f - i);
  }
  if (a.amax != nullptr) grow_amax(a.amax, largest);
}

struct Backward {
  void* d_gate_up;
  const void *d_out, *gate_up;
  std::int64_t d_gate_up_stride, d_out_stride, gate_up_stride, f;
  unsigned pieces;
};

template <class T, bool whole>
__global__ void __launch_bounds__(threads) swiglu_backward_kernel(Backward a) {
  using P = Pack<T>;
  const std::int64_t row = blockIdx.x / a.pieces, piece = blockIdx.x % a.pieces;
  const T* const gate = static_cast<const T*>(a.gate_up) + row * a.gate_up_stride;
  const T* const d_out = static_cast<const T*>(a.d_out) + row * a.d_out_stride;
  T* const d_gate = static_cast<T*>(a.d_gate_up) + row * a.d_gate_up_stride;
  P g[packs], u[packs], d[packs];
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const std::int64_t i = place<P>(k, piece);
    g[k] = P::template load_at<whole>(gate, i, a.f);
    u[k] = P::template load_at<whole>(gate + a.f, i, a.f);
    d[k] = P::template load_at<whole>(d_out, i, a.f);
  }
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const std::int64_t i = place<P>(k, piece);
    if (i >= a.f) continue;
    float d_g[P::size], d_u[P::size];
#pragma unroll
    for (int e = 0; e < P::size; ++e) {
      const float open = sigmoid(g[k].at(e)), silu = g[k].at(e) * open, dy = d[k].at(e);
      d_u[e] = dy * silu;
      d_g[e] = dy * u[k].at(e) * (open + silu * (1.0f - open));
    }
    P::of(d_g).template store<whole>(d_gate + i, a.f - i);
    P::of(d_u).template store<whole>(d_gate + a.f + i, a.f - i);
  }
}

/// Pieces of a row of f elements, and blocks for all rows.
unsigned pieces_of(std::int64_t f, std::int64_t pack) {
  const std::int64_t piece = threads * packs * pack;
  return static_cast<unsigned>((f + piece - 1) / piece);
}
unsigned grid_of(std::int64_t rows, unsigned pieces) {
  expects(rows * pieces < (std::int64_t{1} << 31), "swiglu: a grid has less than 2^31 blocks");
  return static_cast<unsigned>(rows * pieces);
}

}  // namespace

void swiglu(Runtime& runtime, StreamHandle stream, Mat out, ConstMat gate_up, const Quantize* q) {
  const std::int64_t f = out.cols, rows = out.rows, pack = 16 / bytes_of(out.type);
  expects(gate_up.cols == 2 * f && gate_up.rows == rows && gate_up.type == out.type,
          "swiglu: gate_up is T x 2f");
  const Mat copy = q == nullptr ? Mat{} : q->out;
  expects(!copy || (copy.rows == rows && copy.cols == f && q->scale != nullptr),
          "swiglu: the copy is like out and scaled");
  if (rows == 0 || f == 0) return;
  Forward a{};
  a.out = out.data;
  a.gate_up = gate_up.data;
  a.copy = copy.data;
  a.copy_scale = copy ? q->scale : nullptr;
  a.amax = q == nullptr ? nullptr : q->amax;
  a.out_stride = out.stride;
  a.gate_up_stride = gate_up.stride;
  a.copy_stride = copy.stride;
  a.f = f;
  a.pieces = pieces_of(f, pack);
  const bool whole =
      whole_packs(out, pack) && whole_packs(gate_up.cols_at(0, f), pack) && whole_packs(copy, pack);
  const unsigned grid = grid_of(rows, a.pieces);

  runtime.declare(
      stream, "swiglu",
      {writes(out), reads(gate_up), writes(copy), reads(a.copy_scale, a.copy_scale != nullptr ? 4 : 0),
       writes(a.amax, a.amax != nullptr ? 4 : 0)});
  with_element(out.type, [&]<class T>() {
    with_copy(q, [&]<class Copy>() {
      if (whole)
        SIMT_LAUNCH((swiglu_kernel<T, Copy, true>), grid, threads, stream, a);
      else
        SIMT_LAUNCH((swiglu_kernel<T, Copy, false>), grid, threads, stream, a);
    });
  });
  if (q != nullptr && q->transposed)
    quantize(runtime, stream, out,
             {.out = {}, .transposed = q->transposed, .scale = q->scale, .amax = nullptr});
}

void swiglu_backward(Runtime& runtime, StreamHandle stream, Mat d_gate_up, ConstMat d_out, ConstMat gate_up) {
  const std::int64_t f = d_out.cols, rows = d_out.rows, pack = 16 / bytes_of(d_out.type);
  expects(gate_up.cols == 2 * f && gate_up.rows == rows && gate_up.type == d_out.type,
          "swiglu: gate_up is T x 2f");
  expects(d_gate_up.cols == 2 * f && d_gate_up.rows == rows && d_gate_up.type == d_out.type,
          "swiglu: d_gate_up is T x 2f");
  if (rows == 0 || f == 0) return;
  const Backward a{d_gate_up.data, d_out.data, gate_up.data,      d_gate_up.stride, d_out.stride,
                   gate_up.stride, f,          pieces_of(f, pack)};
  const bool whole = whole_packs(d_out, pack) && whole_packs(gate_up.cols_at(0, f), pack) &&
                     whole_packs(d_gate_up.cols_at(0, f), pack);
  const unsigned grid = grid_of(rows, a.pieces);

  runtime.declare(stream, "swiglu_backward", {writes(d_gate_up), reads(d_out), reads(gate_up)});
  with_element(d_out.type, [&]<class T>() {
    if (whole)
      SIMT_LAUNCH((swiglu_backward_kernel<T, true>), grid, threads, stream, a);
    else
      SIMT_LAUNCH((swiglu_backward_kernel<T, false>), grid, threads, stream, a);
  });
}

}  // namespace holdfast::cuda
