// One block per row, the row in registers: 16 or 32 elements per thread, read once as 16-byte packs that are
// all asked for before the first is used. Pack k * threads + t of a row is thread t's k-th.
#include "src/cuda/kernels/norm.hpp"

#include <cmath>
#include <type_traits>

#include "src/base/error.hpp"
#include "src/cuda/kernels/quantize.hpp"
#include "src/cuda/simt/block_sum.hpp"
#include "src/cuda/simt/operands.hpp"

namespace holdfast::cuda {

namespace {

using kernels::Norm;
using kernels::NormGradient;
using kernels::Write;

constexpr int packs = 2, max_threads = 1024;

/// Blocks of threads that an SM of a Hopper GPU holds at the 64 registers per thread that
/// norm_backward_kernel has, times its SMs: all blocks of the backward pass run at once. A constant, because
/// it orders the sums of the gain's gradient.
constexpr std::int64_t resident_threads = 1024, resident_sms = 132;
constexpr std::int64_t tokens_per_block = 8;  // at least, where there are enough: parts are traffic too

struct ForwardRows {
  const void *residual, *branch;
  void *sum, *out;
  const void* gain;
  void* copy;
  const float* copy_scale;
  unsigned* amax;
  float* inverse_rms;
  std::int64_t residual_stride, branch_stride, sum_stride, out_stride, copy_stride;
  std::int64_t d;
  float epsilon;
};

/// Where a thread's pack k begins in the row.
template <class P>
HOLDFAST_DEVICE int place(int k) {
  return (k * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * P::size;
}

template <class T, class Copy, bool whole>
__global__ void __launch_bounds__(max_threads, 1) norm_kernel(ForwardRows a) {
  using P = Pack<T>;
  const int d = static_cast<int>(a.d);
  SIMT_SHARED(float, warp_sums, block_sum_words);
  const std::int64_t row = blockIdx.x;
  const T* const residual = static_cast<const T*>(a.residual) + row * a.residual_stride;
  const T* const gain = static_cast<const T*>(a.gain);

  P x[packs];
#pragma unroll
  for (int k = 0; k < packs; ++k) x[k] = P::template load_at<whole>(residual, place<P>(k), d);
  if (a.branch != nullptr) {
    const T* const branch = static_cast<const T*>(a.branch) + row * a.branch_stride;
    T* const sum = static_cast<T*>(a.sum) + row * a.sum_stride;
    P y[packs];
#pragma unroll
    for (int k = 0; k < packs; ++k) y[k] = P::template load_at<whole>(branch, place<P>(k), d);
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      float total[P::size];
#pragma unroll
      for (int e = 0; e < P::size; ++e) total[e] = x[k].at(e) + y[k].at(e);
      x[k] = P::of(total);
      x[k].template store_at<whole>(sum, place<P>(k), d);
    }
  }

  float squares = 0;
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    float part = 0;
#pragma unroll
    for (int e = 0; e < P::size; ++e) part += x[k].at(e) * x[k].at(e);
    squares += place<P>(k) < d ? part : 0;
  }
  squares = block_sum(squares, warp_sums);
  const float inverse_rms = 1.0f / sqrtf(squares / static_cast<float>(d) + a.epsilon);
  if (threadIdx.x == 0) a.inverse_rms[row] = inverse_rms;

  T* const out = static_cast<T*>(a.out) + row * a.out_stride;
  unsigned largest = 0;
  float copy_scale = 1;
  if constexpr (!std::is_void_v<Copy>) copy_scale = *a.copy_scale;
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const int i = place<P>(k);
    const P g = P::template load_at<whole>(gain, i, d);
    float y[P::size];
#pragma unroll
    for (int e = 0; e < P::size; ++e) y[e] = x[k].at(e) * inverse_rms * g.at(e);
    const P rounded_y = P::of(y);
    rounded_y.template store_at<whole>(out, i, d);
#pragma unroll
    for (int e = 0; e < P::size; ++e) {
      const unsigned size = size_bits(rounded_y.at(e));
      largest = size > largest ? size : largest;  // behind the row's end: its first elements again, or zeros
      y[e] = rounded_y.at(e) * copy_scale;
    }
    if constexpr (!std::is_void_v<Copy>)
      Pack<Copy, P::size>::of(y).template store_at<whole>(static_cast<Copy*>(a.copy) + row * a.copy_stride, i,
                                                          d);
  }
  if (a.amax != nullptr) grow_amax(a.amax, largest);
}

struct BackwardRows {
  const void *sum, *d_out, *gain;
  void* d_sum;
  const float* inverse_rms;
  float* parts;  ///< gridDim.x x d, or null
  std::int64_t sum_stride, d_out_stride, d_sum_stride;
  std::int64_t rows, d;
};

template <class T, bool whole, bool add>
__global__ void __launch_bounds__(max_threads, 1) norm_backward_kernel(BackwardRows a) {
  using P = Pack<T>;
  const int d = static_cast<int>(a.d);
  SIMT_SHARED(float, warp_sums, 2 * block_sum_words);
  // Loads of single elements take registers of their own: then what the second half needs is read there,
  // again.
  constexpr bool early = add && whole;
  const T* const gain = static_cast<const T*>(a.gain);
  float gain_sum[packs][P::size] = {};
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, turn ^= 1) {
    const T* const sum = static_cast<const T*>(a.sum) + row * a.sum_stride;
    const T* const d_out = static_cast<const T*>(a.d_out) + row * a.d_out_stride;
    T* const d_sum = static_cast<T*>(a.d_sum) + row * a.d_sum_stride;
    P x[packs], dy[packs], arriving[packs];
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      x[k] = P::template load_at<whole>(sum, place<P>(k), d);
      dy[k] = P::template load_at<whole>(d_out, place<P>(k), d);
      if constexpr (early) arriving[k] = P::template load_at<whole>(d_sum, place<P>(k), d);
    }
    const float r = a.inverse_rms[row];
    float dot = 0;
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      const P g = P::template load_at<whole>(gain, place<P>(k), d);
      float part = 0;
#pragma unroll
      for (int e = 0; e < P::size; ++e) {
        part += g.at(e) * dy[k].at(e) * x[k].at(e);
        gain_sum[k][e] += dy[k].at(e) * (x[k].at(e) * r);
      }
      dot += place<P>(k) < d ? part : 0;
    }
    // Two places in turn: a slow warp may still read the last row's sums.
    const float pull = block_sum(dot, warp_sums + turn * block_sum_words) * r * r * r / static_cast<float>(d);
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      const int i = place<P>(k);
      const P g = P::template load_at<whole>(gain, i, d);  // again: it is near, and registers are scarce
      if constexpr (add && !early) arriving[k] = P::template load_at<whole>(d_sum, i, d);
      if constexpr (!whole) {
        x[k] = P::template load_at<whole>(sum, i, d);
        dy[k] = P::template load_at<whole>(d_out, i, d);
      }
      float d_x[P::size];
#pragma unroll
      for (int e = 0; e < P::size; ++e) {
        d_x[e] = r * (g.at(e) * dy[k].at(e)) - x[k].at(e) * pull;
        if constexpr (add) d_x[e] = arriving[k].at(e) + d_x[e];
      }
      P::of(d_x).template store_at<whole>(d_sum, i, d);
    }
  }
  if (a.parts == nullptr) return;
#pragma unroll
  for (int k = 0; k < packs; ++k)
    Pack<float, P::size>::of(gain_sum[k])
        .template store_at<whole>(a.parts + blockIdx.x * a.d, place<P>(k), d);
}

constexpr int strip = warp_size;  // columns of a block; as many warps share its rows

/// total[c] = sum of parts[b][c]. Warp w adds rows w, w + 32, ..., then the warps' sums meet as warp_sum()
/// adds them.
__global__ void __launch_bounds__(strip* strip)
    add_parts_kernel(float* total, const float* parts, std::int64_t blocks, std::int64_t d) {
  SIMT_SHARED(float, sums, strip*(strip + 1));
  const int lane = threadIdx.x % strip, warp = threadIdx.x / strip;
  const std::int64_t column = std::int64_t{blockIdx.x} * strip + lane;
  float sum = 0;
  if (column < d)
#pragma unroll 4
    for (std::int64_t b = warp; b < blocks; b += strip) sum += parts[b * d + column];
  sums[warp * (strip + 1) + lane] = sum;
  __syncthreads();
  sum = warp_sum(sums[lane * (strip + 1) + warp]);
  const std::int64_t mine = std::int64_t{blockIdx.x} * strip + warp;
  if (lane == 0 && mine < d) total[mine] = sum;
}

/// Whole warps that hold a row of d elements in packs of `pack`.
int threads_of(std::int64_t d, std::int64_t pack) {
  const std::int64_t warp_elements = packs * pack * warp_size;
  return static_cast<int>((d + warp_elements - 1) / warp_elements) * warp_size;
}

std::int64_t backward_blocks(std::int64_t tokens, std::int64_t d) {
  const std::int64_t at_once = resident_sms * (resident_threads / threads_of(d, 8));
  const std::int64_t useful = (tokens + tokens_per_block - 1) / tokens_per_block;
  return useful < at_once ? useful : at_once;
}

void check_width(std::int64_t d, DType type) {
  expects(d >= 1, "norm: rows are not empty");
  if (d > norm_widest(type))
    throw Error(Exit::usage, "a norm of " + std::to_string(d) + " columns does not fit the GPU's kernel",
                "a block holds a row of at most " + std::to_string(norm_widest(type)) + " in its registers");
}

bool same_shape(const ConstMat& a, const ConstMat& b) {
  return a.rows == b.rows && a.cols == b.cols && a.type == b.type;
}

}  // namespace

void norm(Runtime& runtime, StreamHandle stream, const Norm& n) {
  const std::int64_t d = n.residual.cols, rows = n.residual.rows;
  check_width(d, n.out.type);
  expects(same_shape(n.out, n.residual), "norm: out is like residual");
  expects(n.gain.rows == 1 && n.gain.cols == d && n.gain.type == n.out.type,
          "norm: gain is 1 x d, of out's type");
  expects(!n.branch || (same_shape(n.branch, n.residual) && same_shape(n.sum, n.residual)),
          "norm: branch and sum are like residual");
  expects(n.inverse_rms != nullptr, "norm: inverse_rms is written");
  expects(rows < (std::int64_t{1} << 31), "norm: rows are counted in 31 bits");
  const kernels::Quantize* const q = n.quantize;
  const Mat copy = q == nullptr ? Mat{} : q->out;
  expects(!copy || (copy.rows == rows && copy.cols == d && q->scale != nullptr),
          "norm: the copy is like out and scaled");
  if (rows == 0) return;

  const Mat sum = n.branch ? n.sum : Mat{};
  ForwardRows a{};
  a.residual = n.residual.data, a.branch = n.branch.data, a.sum = sum.data, a.out = n.out.data,
  a.gain = n.gain.data;
  a.residual_stride = n.residual.stride;
  a.branch_stride = n.branch.stride;
  a.sum_stride = sum.stride;
  a.out_stride = n.out.stride;
  a.copy_stride = copy.stride;
  a.copy = copy.data;
  a.copy_scale = copy ? q->scale : nullptr;
  a.amax = q == nullptr ? nullptr : q->amax;
  a.inverse_rms = n.inverse_rms;
  a.d = d;
  a.epsilon = n.epsilon;
  const std::int64_t pack = 16 / bytes_of(n.out.type);
  bool whole = true;
  for (const ConstMat& m : {n.residual, n.branch, ConstMat(sum), ConstMat(n.out), n.gain, ConstMat(copy)})
    whole = whole && whole_packs(m, pack);
  const auto grid = static_cast<unsigned>(rows), block = static_cast<unsigned>(threads_of(d, pack));

  runtime.declare(stream, "norm",
                  {reads(n.residual), reads(n.branch), writes(sum), writes(n.out), reads(n.gain),
                   writes(copy), reads(a.copy_scale, a.copy_scale != nullptr ? 4 : 0),
                   writes(a.amax, a.amax != nullptr ? 4 : 0), writes(n.inverse_rms, rows * 4)});
  with_element(n.out.type, [&]<class T>() {
    with_copy(q, [&]<class Copy>() {
      if (whole)
        SIMT_LAUNCH((norm_kernel<T, Copy, true>), grid, block, stream, a);
      else
        SIMT_LAUNCH((norm_kernel<T, Copy, false>), grid, block, stream, a);
    });
  });
  if (q != nullptr && q->transposed)
    quantize(runtime, stream, n.out,
             {.out = {}, .transposed = q->transposed, .scale = q->scale, .amax = nullptr});
}

std::int64_t norm_widest(DType type) { return max_threads * packs * 16 / bytes_of(type); }

std::int64_t norm_backward_scratch(std::int64_t tokens, std::int64_t d) {
  check_width(d, DType::bf16);
  return backward_blocks(tokens, d) * d;
}

void norm_backward(Runtime& runtime, StreamHandle stream, const NormGradient& g, float* scratch) {
  const std::int64_t d = g.sum.cols, rows = g.sum.rows;
  check_width(d, g.sum.type);
  expects(same_shape(g.d_out, g.sum) && same_shape(g.d_sum, g.sum),
          "norm_backward: all matrices are like sum");
  expects(g.gain.rows == 1 && g.gain.cols == d && g.gain.type == g.sum.type,
          "norm_backward: gain is 1 x d, of sum's type");
  expects(g.inverse_rms != nullptr, "norm_backward: inverse_rms is read");
  expects(g.d_gain == nullptr || scratch != nullptr || rows == 0,
          "norm_backward: the gain's gradient needs scratch");
  if (rows == 0) {
    if (g.d_gain != nullptr) runtime.zero(stream, g.d_gain, d * 4);
    return;
  }
  float* const parts = g.d_gain == nullptr ? nullptr : scratch;
  const std::int64_t blocks = backward_blocks(rows, d);
  const BackwardRows a{g.sum.data, g.d_out.data, g.gain.data,    g.d_sum.data,   g.inverse_rms,
                       parts,      g.sum.stride, g.d_out.stride, g.d_sum.stride, rows,
                       d};
  const std::int64_t pack = 16 / bytes_of(g.sum.type);
  bool whole = true;
  for (const ConstMat& m : {g.sum, g.d_out, g.gain, ConstMat(g.d_sum)}) whole = whole && whole_packs(m, pack);
  const auto grid = static_cast<unsigned>(blocks), block = static_cast<unsigned>(threads_of(d, pack));

  runtime.declare(stream, "norm_backward",
                  {reads(g.sum), reads(g.d_out), reads(g.gain), writes(g.d_sum),
                   reads(g.inverse_rms, rows * 4), writes(parts, parts != nullptr ? blocks * d * 4 : 0)});
  with_element(g.sum.type, [&]<class T>() {
    if (whole && g.write == Write::add)
      SIMT_LAUNCH((norm_backward_kernel<T, true, true>), grid, block, stream, a);
    else if (whole)
      SIMT_LAUNCH((norm_backward_kernel<T, true, false>), grid, block, stream, a);
    else if (g.write == Write::add)
      SIMT_LAUNCH((norm_backward_kernel<T, false, true>), grid, block, stream, a);
    else
      SIMT_LAUNCH((norm_backward_kernel<T, false, false>), grid, block, stream, a);
  });
  if (parts == nullptr) return;
  runtime.declare(stream, "norm_backward: gain", {reads(parts, blocks * d * 4), writes(g.d_gain, d * 4)});
  SIMT_LAUNCH(add_parts_kernel, static_cast<unsigned>((d + strip - 1) / strip), strip * strip, stream,
              g.d_gain, parts, blocks, d);
}

}  // namespace holdfast::cuda
