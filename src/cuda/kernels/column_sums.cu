#include "src/cuda/kernels/column_sums.hpp"

#include <algorithm>

#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

constexpr int lanes = 32, lines = 8, threads = lanes * lines;
constexpr std::int64_t least_tokens = 64, max_blocks = 64;

std::int64_t tokens_per_block(std::int64_t tokens) {
  return std::max(least_tokens, (tokens + max_blocks - 1) / max_blocks);
}
std::int64_t blocks_of(std::int64_t tokens) {
  const std::int64_t per_block = tokens_per_block(tokens);
  return (tokens + per_block - 1) / per_block;
}

/// A lane adds a pack of columns over every eighth token of the block blockIdx.y, from `line` on.
template <class T, bool whole>
__global__ void __launch_bounds__(threads)
    column_sums_kernel(float* parts, const T* x, std::int64_t stride, std::int64_t tokens, std::int64_t cols,
                       std::int64_t per_block) {
  constexpr int pack = Pack<T>::size, strip = lanes * pack;
  SIMT_SHARED(float, sums, lines* strip);
  const int lane = static_cast<int>(threadIdx.x) % lanes, line = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t strip_start = static_cast<std::int64_t>(blockIdx.x) * strip,
                     column = strip_start + lane * pack, left = cols - column;
  const std::int64_t first = blockIdx.y * per_block,
                     end = first + per_block < tokens ? first + per_block : tokens;
  float sum[pack] = {};
  if (left > 0) {
#pragma unroll 4
    for (std::int64_t t = first + line; t < end; t += lines) {
      const auto row = Pack<T>::template load<whole>(x + t * stride + column, left);
#pragma unroll
      for (int i = 0; i < pack; ++i) sum[i] += row.at(i);
    }
  }
#pragma unroll
  for (int i = 0; i < pack; ++i) sums[line * strip + lane * pack + i] = sum[i];
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  if (mine >= strip || strip_start + mine >= cols) return;
  float total = sums[mine];
#pragma unroll
  for (int l = 1; l < lines; ++l) total += sums[l * strip + mine];
  parts[blockIdx.y * cols + strip_start + mine] = total;
}

__global__ void __launch_bounds__(threads)
    add_parts_kernel(float* out, const float* parts, std::int64_t cols, int blocks) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (column >= cols) return;
  float total = parts[column];
#pragma unroll 8
  for (int b = 1; b < blocks; ++b) total += parts[b * cols + column];
  out[column] = total;
}

}  // namespace

std::int64_t column_sums_scratch(std::int64_t tokens, std::int64_t cols) {
  return blocks_of(tokens) <= 1 ? 0 : blocks_of(tokens) * cols;
}

void column_sums(Runtime& runtime, StreamHandle stream, float* out, const ConstMat& x, float* scratch) {
  if (x.cols == 0) return;
  if (x.rows == 0) return runtime.zero(stream, out, x.cols * 4);
  const std::int64_t blocks = blocks_of(x.rows);
  expects(blocks == 1 || scratch != nullptr, "column_sums: scratch for the blocks' sums");
  float* const parts = blocks == 1 ? out : scratch;
  runtime.declare(stream, "column_sums", {reads(x), writes(parts, blocks * x.cols * 4)});
  with_element(x.type, [&]<class T>() {
    constexpr std::int64_t strip = lanes * Pack<T>::size;
    const dim3 grid(static_cast<unsigned>((x.cols + strip - 1) / strip), static_cast<unsigned>(blocks));
    const T* const data = x.row<const T>(0);
    if (whole_packs(x, Pack<T>::size))
      SIMT_LAUNCH((column_sums_kernel<T, true>), grid, threads, stream, parts, data, x.stride, x.rows, x.cols,
                  tokens_per_block(x.rows));
    else
      SIMT_LAUNCH((column_sums_kernel<T, false>), grid, threads, stream, parts, data, x.stride, x.rows,
                  x.cols, tokens_per_block(x.rows));
  });
  if (blocks == 1) return;
  runtime.declare(stream, "column_sums: blocks",
                  {reads(parts, blocks * x.cols * 4), writes(out, x.cols * 4)});
  SIMT_LAUNCH(add_parts_kernel, static_cast<unsigned>((x.cols + threads - 1) / threads), threads, stream, out,
              parts, x.cols, static_cast<int>(blocks));
}

}  // namespace holdfast::cuda
