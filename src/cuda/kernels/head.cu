// A block of threads takes one row of logits. In its first pass, from the last batch of the row to the first,
// each thread keeps its largest logit and the sum of exp(logit - largest); block_merged() joins these pairs
// by shuffles within warps and then across them. The first thread writes the loss, in double. The second pass
// writes the gradient from the first batch on, which is still in registers; a row of more than 32768 logits
// is read a second time from its second batch on. A row whose label is below 0 gets zeros. add_losses() is a
// single block that adds the losses of a chunk exactly, in integers.
//
// No float is added by an atomic, and the number of threads follows from the number of columns: bits are the
// same in every run. Rows that are not aligned whole packs take the instance of the kernel with `whole`
// false.
#include "src/cuda/kernels/head.hpp"

#include <cfloat>
#include <cmath>
#include <type_traits>

#include "src/cuda/simt/block_sum.hpp"
#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/exact_sum.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

constexpr int max_threads = 1024, sum_threads = 256;
constexpr int pack = 4, packs = 8;
constexpr int batch = pack * packs;  ///< elements per thread that stay in registers: 32768 of a row in all
constexpr float log2_e = 1.44269504f;

/// Of some elements: the largest, or the lowest finite number, and the sum of exp(x - top).
struct Softmax {
  float top, sum;
};
HOLDFAST_DEVICE float exponential(float x) { return exp2f(x * log2_e); }

/// NaNs are passed over by the maximum; they come back through the sum.
HOLDFAST_DEVICE Softmax merged(const Softmax& a, const Softmax& b) {
  const float top = fmaxf(a.top, b.top);
  return {top, a.sum * exponential(a.top - top) + b.sum * exponential(b.top - top)};
}
/// Both partners of an exchange get the same bits: IEEE addition commutes and nothing is contracted.
HOLDFAST_DEVICE Softmax warp_merged(Softmax mine) {
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) {
    Softmax other{};
    other.top = __shfl_xor_sync(~0u, mine.top, distance);
    other.sum = __shfl_xor_sync(~0u, mine.sum, distance);
    mine = merged(mine, other);
  }
  return mine;
}
/// Of the whole block, for every thread; a barrier for its memory as well. `room`: shared, one per warp.
HOLDFAST_DEVICE Softmax block_merged(Softmax mine, Softmax* room) {
  mine = warp_merged(mine);
  const unsigned lane = threadIdx.x % warp_size;
  if (lane == 0) room[threadIdx.x / warp_size] = mine;
  __syncthreads();
  return warp_merged(lane < blockDim.x / warp_size ? room[lane] : Softmax{-FLT_MAX, 0});
}

/// Batch b of a row: pack p of a thread begins at ((b * packs + p) * blockDim.x + threadIdx.x) * pack.
HOLDFAST_DEVICE int pack_at(int b, int p) {
  return ((b * packs + p) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * pack;
}
/// Behind the end of the row: minus infinity, whose exponential is 0. `whole`: rows are aligned whole packs.
template <bool whole>
HOLDFAST_DEVICE void load_batch(float (&x)[batch], const float* row, int cols, int b) {
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    const int at = pack_at(b, p);
    const auto four = Pack<float>::load<whole>(row + (whole && at >= cols ? 0 : at), cols - at);
#pragma unroll
    for (int i = 0; i < pack; ++i) x[p * pack + i] = at + (whole ? 0 : i) < cols ? four.at(i) : -INFINITY;
  }
}
HOLDFAST_DEVICE Softmax with_batch(const Softmax& before, const float (&x)[batch]) {
  float top = before.top;
#pragma unroll
  for (int i = 0; i < batch; ++i) top = fmaxf(top, x[i]);
  float sum = before.sum * exponential(before.top - top);
#pragma unroll
  for (int i = 0; i < batch; ++i) sum += exponential(x[i] - top);
  return {top, sum};
}

struct Rows {
  float* logits;
  std::int64_t stride;
  int cols;
  const std::int32_t* labels;
  double* losses;
};

/// A block per row. T: of the gradient; void: evaluation.
///
/// In place: elements of the gradient are not wider than logits, so a batch is written over logits of the
/// same batch and of earlier ones only, all of which every thread has read before the barrier that comes
/// before the batch is written.
template <class T, bool whole>
__global__ void __launch_bounds__(max_threads) cross_entropy_kernel(Rows a) {
  constexpr bool with_gradient = !std::is_void_v<T>;
  using Result = Pack<std::conditional_t<with_gradient, T, float>, pack>;
  SIMT_SHARED(Softmax, room, max_threads / warp_size);
  float* const row = a.logits + blockIdx.x * a.stride;
  T* const gradient = reinterpret_cast<T*>(row);
  const int width = batch * static_cast<int>(blockDim.x);
  const std::int32_t label = a.labels[blockIdx.x];
  if (label < 0) {
    if (threadIdx.x == 0) a.losses[blockIdx.x] = 0;
    if constexpr (with_gradient) {
      const float zeros[pack] = {};
      for (int at = pack_at(0, 0); at < a.cols; at += pack * static_cast<int>(blockDim.x))
        Result::of(zeros).template store<whole>(gradient + at, a.cols - at);
    }
    return;
  }
  const float of_label = row[label];
  float x[batch];
  Softmax mine = {-FLT_MAX, 0};
  // The first batch comes last and stays, so that rows of up to 32768 logits are read once.
  for (int b = (a.cols - 1) / width; b >= 0; --b) {
    load_batch<whole>(x, row, a.cols, b);
    mine = with_batch(mine, x);
  }
  const Softmax all = block_merged(mine, room);
  if (threadIdx.x == 0) {
    const double loss =
        log(static_cast<double>(all.sum)) + (static_cast<double>(all.top) - static_cast<double>(of_label));
    a.losses[blockIdx.x] = loss < 0 ? 0 : loss;  // the sum is rounded: a certain label may come out at -1e-8
  }
  if constexpr (with_gradient) {
    const float inverse = __fdiv_rn(1.0f, all.sum);
    for (int b = 0; b * width < a.cols; ++b) {
      if (b > 0) {
        load_batch<whole>(x, row, a.cols, b);
        __syncthreads();
      }
#pragma unroll
      for (int p = 0; p < packs; ++p) {
        const int at = pack_at(b, p);
        if (at >= a.cols) continue;
        float g[pack];
#pragma unroll
        for (int i = 0; i < pack; ++i) {
          g[i] = exponential(x[p * pack + i] - all.top) * inverse;
          if (at + i == label) g[i] -= 1.0f;
        }
        Result::of(g).template store<whole>(gradient + at, a.cols - at);
      }
    }
  }
}

__global__ void __launch_bounds__(sum_threads)
    add_losses_kernel(const double* losses, const std::int32_t* labels, int tokens, ExactWords* loss,
                      unsigned long long* valid) {
  SIMT_SHARED(ExactWords, room, sum_threads / warp_size);
  ExactWords mine = exact::zero();
  unsigned count = 0;
  for (int t = static_cast<int>(threadIdx.x); t < tokens; t += sum_threads) {
    if (labels[t] < 0) continue;
    exact::add_number(mine, losses[t]);
    ++count;
  }
  const ExactWords total = exact::block_total(mine, room);
  if (threadIdx.x == 0) exact::add(*loss, total);
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) count += __shfl_xor_sync(~0u, count, distance);
  if (threadIdx.x % warp_size == 0) atomicAdd(valid, static_cast<unsigned long long>(count));
}

}  // namespace

void cross_entropy(Runtime& runtime, StreamHandle stream, const Mat& logits, const std::int32_t* labels,
                   bool with_gradient, DType gradient, double* losses) {
  expects(logits.type == DType::fp32, "cross_entropy: logits are fp32");
  expects(logits.cols > 0 && logits.cols < 1 << 30 && logits.rows < std::int64_t{1} << 31,
          "cross_entropy: rows of logits");
  if (logits.rows == 0) return;
  const Rows a{reinterpret_cast<float*>(logits.data), logits.stride, static_cast<int>(logits.cols), labels,
               losses};
  // As few batches as possible, and threads for whole ones.
  const std::int64_t batches = (logits.cols + max_threads * batch - 1) / (max_threads * batch);
  const std::int64_t per_warp = warp_size * batch * batches;
  const auto threads = static_cast<unsigned>((logits.cols + per_warp - 1) / per_warp * warp_size);
  const auto grid = static_cast<unsigned>(logits.rows);
  const Access rows = with_gradient ? writes(logits) : reads(logits);
  runtime.declare(stream, "cross_entropy",
                  {rows, reads(labels, logits.rows * 4), writes(losses, logits.rows * 8)});
  const auto launch = [&]<class T>() {
    if (whole_packs(logits, pack))
      SIMT_LAUNCH((cross_entropy_kernel<T, true>), grid, threads, stream, a);
    else
      SIMT_LAUNCH((cross_entropy_kernel<T, false>), grid, threads, stream, a);
  };
  if (with_gradient)
    with_element(gradient, launch);
  else
    launch.template operator()<void>();
}

void add_losses(Runtime& runtime, StreamHandle stream, const double* losses, const std::int32_t* labels,
                std::int64_t tokens, tensor::ExactSum* loss, std::int64_t* valid) {
  expects(loss != nullptr && valid != nullptr, "add_losses: sums to add to");
  expects(tokens < std::int64_t{1} << 30, "add_losses: a chunk of tokens");
  if (tokens == 0) return;
  runtime.declare(stream, "add_losses",
                  {reads(losses, tokens * 8), reads(labels, tokens * 4),
                   writes(loss, sizeof(tensor::ExactSum)), writes(valid, 8)});
  SIMT_LAUNCH(add_losses_kernel, 1, sum_threads, stream, losses, labels, static_cast<int>(tokens),
              reinterpret_cast<ExactWords*>(loss), reinterpret_cast<unsigned long long*>(valid));
}

}  // namespace holdfast::cuda
