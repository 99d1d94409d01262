// The gradient is summed without atomics: tokens are brought in order by counting, for each, how many belong
// before it, which needs neither a sort's passes nor memory for the vocabulary and costs some 10 us for 8192
// tokens; then the blocks at the beginning of equal tokens add their rows.
#include "src/cuda/kernels/embedding.hpp"

#include "src/base/error.hpp"
#include "src/cuda/simt/block_sum.hpp"
#include "src/cuda/simt/operands.hpp"

namespace holdfast::cuda {

namespace {

using kernels::Write;

constexpr int threads = 128, packs = 2;
constexpr int at_once = 8;  // rows that are read before the first is added

struct Rows {
  void* out;
  const void* table;
  const std::int32_t* tokens;
  std::int64_t out_stride, table_stride, d;
  unsigned pieces;  ///< of a row
};

template <class T, bool whole>
__global__ void __launch_bounds__(threads) embed_kernel(Rows a) {
  using P = Pack<T>;
  const std::int64_t t = blockIdx.x / a.pieces, piece = blockIdx.x % a.pieces;
  const std::int64_t token = a.tokens[t];
  const T* const from = static_cast<const T*>(a.table) + token * a.table_stride;
  T* const to = static_cast<T*>(a.out) + t * a.out_stride;
  P x[packs];
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const std::int64_t i = ((piece * packs + k) * threads + threadIdx.x) * P::size;
    x[k] = token >= 0 ? P::template load_at<whole>(from, i, a.d) : P{};
  }
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const std::int64_t i = ((piece * packs + k) * threads + threadIdx.x) * P::size;
    x[k].template store_at<whole>(to, i, a.d);
  }
}

/// order[p]: the tokens' places, sorted by token, then by place; key[p]: their tokens. A warp finds the p of
/// one place.
__global__ void __launch_bounds__(threads)
    order_kernel(std::int32_t* order, std::int32_t* key, const std::int32_t* tokens, int count) {
  const int mine = static_cast<int>((std::int64_t{blockIdx.x} * threads + threadIdx.x) / warp_size);
  if (mine >= count) return;  // the whole warp
  const int lane = threadIdx.x % warp_size, token = tokens[mine];
  int before = 0;
#pragma unroll 4
  for (int t = lane; t < count; t += warp_size) {
    const int other = tokens[t];
    before += other < token || (other == token && t < mine) ? 1 : 0;
  }
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2)
    before += __shfl_xor_sync(~0u, before, distance);
  if (lane == 0) {
    order[before] = mine;
    key[before] = token;
  }
}

struct Sums {
  float* d_table;
  const void* d_out;
  const std::int32_t *order, *key;
  std::int64_t d_table_stride, d_out_stride, d;
  int count;
  unsigned pieces;
  bool add;
};

/// Packs of the fp32 table: 16 bytes of it, 8 or 16 of d_out.
template <class T, bool whole>
__global__ void __launch_bounds__(threads) embed_backward_kernel(Sums a) {
  using P = Pack<T, 4>;
  using F = Pack<float, 4>;
  const int first = static_cast<int>(blockIdx.x / a.pieces);
  const std::int64_t token = a.key[first];
  if (token < 0 || (first > 0 && a.key[first - 1] == token)) return;
  const std::int64_t i = (std::int64_t{blockIdx.x % a.pieces} * threads + threadIdx.x) * F::size;
  if (i >= a.d) return;
  float* const row = a.d_table + token * a.d_table_stride + i;
  const T* const d_out = static_cast<const T*>(a.d_out) + i;
  const F old = a.add ? F::template load<whole>(row, a.d - i) : F{};
  float sum[F::size];
#pragma unroll
  for (int e = 0; e < F::size; ++e) sum[e] = old.at(e);
  for (int p = first; p < a.count && a.key[p] == token; p += at_once) {
    P x[at_once];
    bool same[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      same[k] = p + k < a.count && a.key[p + k] == token;
      x[k] = same[k] ? P::template load<whole>(d_out + a.order[p + k] * a.d_out_stride, a.d - i) : P{};
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k)
      if (same[k]) {
#pragma unroll
        for (int e = 0; e < F::size; ++e) sum[e] += x[k].at(e);
      }
  }
  F::of(sum).template store<whole>(row, a.d - i);
}

unsigned pieces_of(std::int64_t d, std::int64_t piece) {
  return static_cast<unsigned>((d + piece - 1) / piece);
}
unsigned grid_of(std::int64_t rows, unsigned pieces) {
  expects(rows * pieces < (std::int64_t{1} << 31), "embed: a grid has less than 2^31 blocks");
  return static_cast<unsigned>(rows * pieces);
}

}  // namespace

void embed(Runtime& runtime, StreamHandle stream, Mat out, ConstMat table, const std::int32_t* tokens) {
  const std::int64_t d = out.cols, pack = 16 / bytes_of(out.type);
  expects(d == table.cols && out.type == table.type, "embed: rows of the table");
  if (out.rows == 0 || d == 0) return;
  const Rows a{
      out.data, table.data, tokens, out.stride, table.stride, d, pieces_of(d, threads * packs * pack)};
  const unsigned grid = grid_of(out.rows, a.pieces);

  runtime.declare(stream, "embed", {writes(out), reads(table), reads(tokens, out.rows * 4)});
  with_element(out.type, [&]<class T>() {
    if (whole_packs(out, pack) && whole_packs(table, pack))
      SIMT_LAUNCH((embed_kernel<T, true>), grid, threads, stream, a);
    else
      SIMT_LAUNCH((embed_kernel<T, false>), grid, threads, stream, a);
  });
}

std::int64_t embed_backward_scratch(std::int64_t tokens) { return 2 * tokens; }

void embed_backward(Runtime& runtime, StreamHandle stream, Mat d_table, ConstMat d_out,
                    const std::int32_t* tokens, Write write, std::int32_t* scratch) {
  const std::int64_t d = d_table.cols, count = d_out.rows;
  expects(d == d_out.cols && d_table.type == DType::fp32, "embed_backward: rows of the table, fp32");
  expects(count < (std::int64_t{1} << 26), "embed_backward: int holds the places of tokens");
  if (write == Write::replace)
    for (std::int64_t row = 0; row < (d_table.stride == d ? 1 : d_table.rows); ++row)
      runtime.zero(stream, d_table.row<float>(row), (d_table.stride == d ? d_table.rows : 1) * d * 4);
  if (count == 0 || d == 0) return;
  std::int32_t *const order = scratch, *const key = scratch + count;
  const auto warps_per_block = std::int64_t{threads / warp_size};

  runtime.declare(stream, "embed_backward: order", {reads(tokens, count * 4), writes(scratch, count * 8)});
  SIMT_LAUNCH(order_kernel, static_cast<unsigned>((count + warps_per_block - 1) / warps_per_block), threads,
              stream, order, key, tokens, static_cast<int>(count));

  constexpr std::int64_t pack = 4;
  const Sums a{d_table.row<float>(0),
               d_out.data,
               order,
               key,
               d_table.stride,
               d_out.stride,
               d,
               static_cast<int>(count),
               pieces_of(d, threads * pack),
               write == Write::add};
  const unsigned grid = grid_of(count, a.pieces);
  runtime.declare(stream, "embed_backward", {writes(d_table), reads(d_out), reads(scratch, count * 8)});
  with_element(d_out.type, [&]<class T>() {
    if (whole_packs(d_table, pack) && whole_packs(d_out, pack))
      SIMT_LAUNCH((embed_backward_kernel<T, true>), grid, threads, stream, a);
    else
      SIMT_LAUNCH((embed_backward_kernel<T, false>), grid, threads, stream, a);
  });
}

}  // namespace holdfast::cuda
