// A warp takes one head of a token at a time, in registers: 4 elements per lane and pack, which is all of a
// head of 128. The warps of a block share the heads of its token.
#include "src/cuda/kernels/head_norm.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/error.hpp"
#include "src/cuda/kernels/column_sums.hpp"
#include "src/cuda/simt/block_sum.hpp"
#include "src/cuda/simt/operands.hpp"

namespace holdfast::cuda {

namespace {

using kernels::HeadNorm;
using kernels::HeadNormGradient;

constexpr int threads = 128, warps = threads / warp_size;
constexpr int pack = 4, packs = 2;
static_assert(warp_size * pack * packs == head_norm_widest);

/// Of the backward pass: blocks that an SM of a Hopper GPU holds at once, times its SMs, with at least so
/// many tokens each. Constants, because they order the sums of the gains' gradients.
constexpr int resident_blocks = 7;
constexpr std::int64_t most_blocks = 132 * resident_blocks, tokens_per_block = 8;

/// Where a lane's pack k begins in the head.
HOLDFAST_DEVICE int place(int k) {
  return (k * warp_size + static_cast<int>(threadIdx.x) % warp_size) * pack;
}

struct Heads {
  const void *in, *q_gain, *k_gain;
  void* out;
  float* inverse_rms;
  std::int64_t in_stride, out_stride;
  int queries, normed, all;  ///< heads of queries, of queries and keys, and with those of values
  int size;
  float epsilon;
};

template <class T, bool whole>
__global__ void __launch_bounds__(threads) head_norm_kernel(Heads a) {
  using P = Pack<T, pack>;
  const std::int64_t token = blockIdx.x;
  for (int head = static_cast<int>(threadIdx.x) / warp_size; head < a.all; head += warps) {
    const T* const in = static_cast<const T*>(a.in) + token * a.in_stride + head * a.size;
    T* const out = static_cast<T*>(a.out) + token * a.out_stride + head * a.size;
    P x[packs];
#pragma unroll
    for (int k = 0; k < packs; ++k) x[k] = P::template load_at<whole>(in, place(k), a.size);
    if (head < a.normed) {
      float squares = 0;
#pragma unroll
      for (int k = 0; k < packs; ++k) {
        float part = 0;
#pragma unroll
        for (int e = 0; e < pack; ++e) part += x[k].at(e) * x[k].at(e);
        squares += place(k) < a.size ? part : 0;
      }
      const float inverse_rms = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.size) + a.epsilon);
      if (threadIdx.x % warp_size == 0) a.inverse_rms[token * a.normed + head] = inverse_rms;
      const T* const gain = static_cast<const T*>(head < a.queries ? a.q_gain : a.k_gain);
#pragma unroll
      for (int k = 0; k < packs; ++k) {
        const P g = P::template load_at<whole>(gain, place(k), a.size);
        float y[pack];
#pragma unroll
        for (int e = 0; e < pack; ++e) y[e] = x[k].at(e) * inverse_rms * g.at(e);
        x[k] = P::of(y);
      }
    }
#pragma unroll
    for (int k = 0; k < packs; ++k) x[k].template store_at<whole>(out, place(k), a.size);
  }
}

struct HeadGradients {
  const void *in, *q_gain, *k_gain;
  void* d;  ///< of `out`, then of `in`
  const float* inverse_rms;
  float* parts;  ///< of each warp: of the gain of queries, then of keys; or null
  std::int64_t in_stride, d_stride, tokens;
  int queries, normed, size;
};

/// Of the heads from `first` on, those that are the warp's.
template <class T, bool whole>
HOLDFAST_DEVICE void heads_backward(const HeadGradients& a, std::int64_t token, int first, int end,
                                    const T* gain, float (&gain_sum)[packs][pack]) {
  using P = Pack<T, pack>;
  for (int head = first + static_cast<int>(threadIdx.x) / warp_size; head < end; head += warps) {
    const T* const in = static_cast<const T*>(a.in) + token * a.in_stride + head * a.size;
    T* const d = static_cast<T*>(a.d) + token * a.d_stride + head * a.size;
    const float r = a.inverse_rms[token * a.normed + head];
    P x[packs], dy[packs], g[packs];
    float dot = 0;
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      x[k] = P::template load_at<whole>(in, place(k), a.size);
      dy[k] = P::template load_at<whole>(d, place(k), a.size);
      g[k] = P::template load_at<whole>(gain, place(k), a.size);
      float part = 0;
#pragma unroll
      for (int e = 0; e < pack; ++e) {
        part += g[k].at(e) * dy[k].at(e) * x[k].at(e);
        gain_sum[k][e] += dy[k].at(e) * (x[k].at(e) * r);
      }
      dot += place(k) < a.size ? part : 0;
    }
    const float pull = warp_sum(dot) * r * r * r / static_cast<float>(a.size);
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      float d_x[pack];
#pragma unroll
      for (int e = 0; e < pack; ++e) d_x[e] = r * (g[k].at(e) * dy[k].at(e)) - x[k].at(e) * pull;
      P::of(d_x).template store_at<whole>(d, place(k), a.size);
    }
  }
}

template <class T, bool whole>
__global__ void __launch_bounds__(threads, resident_blocks) head_norm_backward_kernel(HeadGradients a) {
  float q_sum[packs][pack] = {}, k_sum[packs][pack] = {};
  for (std::int64_t token = blockIdx.x; token < a.tokens; token += gridDim.x) {
    heads_backward<T, whole>(a, token, 0, a.queries, static_cast<const T*>(a.q_gain), q_sum);
    heads_backward<T, whole>(a, token, a.queries, a.normed, static_cast<const T*>(a.k_gain), k_sum);
  }
  if (a.parts == nullptr) return;
  const std::int64_t warp = std::int64_t{blockIdx.x} * warps + threadIdx.x / warp_size;
  float* const part = a.parts + warp * 2 * a.size;
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    Pack<float, pack>::of(q_sum[k]).template store_at<whole>(part, place(k), a.size);
    Pack<float, pack>::of(k_sum[k]).template store_at<whole>(part + a.size, place(k), a.size);
  }
}

std::int64_t backward_blocks(std::int64_t tokens) {
  return std::min(most_blocks, (tokens + tokens_per_block - 1) / tokens_per_block);
}

/// What both passes ask of the call. True: heads are whole packs of `in` and `other`.
bool check_heads(const HeadNorm& n, const ConstMat& other) {
  const std::int64_t all = std::int64_t{n.heads} + 2 * std::int64_t{n.kv_heads};
  expects(n.heads >= 1 && n.kv_heads >= 1 && n.head_size >= 1, "head_norm: heads are not empty");
  if (n.head_size > head_norm_widest)
    throw Error(Exit::usage,
                "norms of heads of " + std::to_string(n.head_size) + " do not fit the GPU's kernel",
                "a warp holds a head of at most " + std::to_string(head_norm_widest) + " in its registers");
  expects(n.in.cols == all * n.head_size && n.in.rows < (std::int64_t{1} << 31) &&
              n.in.cols < (std::int64_t{1} << 30),
          "head_norm: in is T x (heads + 2 kv_heads) * head_size");
  expects(other.rows == n.in.rows && other.cols == n.in.cols && other.type == n.in.type,
          "head_norm: all matrices are like in");
  bool whole = n.head_size % pack == 0 && whole_packs(n.in, pack) && whole_packs(other, pack);
  for (const ConstMat& gain : {n.q_gain, n.k_gain}) {
    expects(gain.rows == 1 && gain.cols == n.head_size && gain.type == n.in.type,
            "head_norm: gains are 1 x head_size, of in's type");
    whole = whole && whole_packs(gain, pack);
  }
  expects(n.inverse_rms != nullptr || n.in.rows == 0, "head_norm: inverse_rms is written and read");
  return whole;
}

}  // namespace

void head_norm(Runtime& runtime, StreamHandle stream, const HeadNorm& n) {
  const bool whole = check_heads(n, n.out);
  if (n.in.rows == 0) return;
  const int normed = n.heads + n.kv_heads;
  const Heads a{n.in.data,    n.q_gain.data, n.k_gain.data, n.out.data,          n.inverse_rms, n.in.stride,
                n.out.stride, n.heads,       normed,        normed + n.kv_heads, n.head_size,   n.epsilon};
  runtime.declare(stream, "head_norm",
                  {reads(n.in), writes(n.out), reads(n.q_gain), reads(n.k_gain),
                   writes(n.inverse_rms, n.in.rows * normed * 4)});
  const auto grid = static_cast<unsigned>(n.in.rows);
  with_element(n.in.type, [&]<class T>() {
    if (whole)
      SIMT_LAUNCH((head_norm_kernel<T, true>), grid, threads, stream, a);
    else
      SIMT_LAUNCH((head_norm_kernel<T, false>), grid, threads, stream, a);
  });
}

std::int64_t head_norm_backward_scratch(std::int64_t tokens, std::int64_t head_size) {
  const std::int64_t rows = backward_blocks(tokens) * warps;
  return rows * 2 * head_size + column_sums_scratch(rows, head_size);
}

void head_norm_backward(Runtime& runtime, StreamHandle stream, const HeadNorm& n, const HeadNormGradient& g,
                        float* scratch) {
  const bool whole = check_heads(n, g.d_qkv), wanted = g.d_q_gain != nullptr || g.d_k_gain != nullptr;
  const std::int64_t tokens = n.in.rows, size = n.head_size, blocks = backward_blocks(tokens),
                     rows = blocks * warps;
  expects(!wanted || scratch != nullptr || tokens == 0, "head_norm_backward: sums of gains need scratch");
  if (tokens == 0) {
    for (float* const gain : {g.d_q_gain, g.d_k_gain})
      if (gain != nullptr) runtime.zero(stream, gain, size * 4);
    return;
  }
  const int normed = n.heads + n.kv_heads;
  float* const parts = wanted ? scratch : nullptr;
  const Mat turned = g.d_qkv.cols_at(0, normed * size);  // gradients of values stay as they are
  const HeadGradients a{n.in.data,   n.q_gain.data,  n.k_gain.data, g.d_qkv.data, n.inverse_rms, parts,
                        n.in.stride, g.d_qkv.stride, tokens,        n.heads,      normed,        n.head_size};
  runtime.declare(
      stream, "head_norm_backward",
      {reads(n.in), writes(turned), reads(n.q_gain), reads(n.k_gain),
       reads(n.inverse_rms, tokens * normed * 4), writes(parts, parts == nullptr ? 0 : rows * 2 * size * 4)});
  const auto grid = static_cast<unsigned>(blocks);
  with_element(n.in.type, [&]<class T>() {
    if (whole)
      SIMT_LAUNCH((head_norm_backward_kernel<T, true>), grid, threads, stream, a);
    else
      SIMT_LAUNCH((head_norm_backward_kernel<T, false>), grid, threads, stream, a);
  });
  if (!wanted) return;
  const ConstMat both{reinterpret_cast<const std::byte*>(parts), DType::fp32, rows, 2 * size, 2 * size};
  float* const more = parts + rows * 2 * size;
  if (g.d_q_gain != nullptr) column_sums(runtime, stream, g.d_q_gain, both.cols_at(0, size), more);
  if (g.d_k_gain != nullptr) column_sums(runtime, stream, g.d_k_gain, both.cols_at(size, size), more);
}

}  // namespace holdfast::cuda
