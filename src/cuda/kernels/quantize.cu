// quantize_kernel gives each block a tile of 64 x 64 elements. Its threads load packs of 8, note the largest
// |x|, scale and round, and store the packs in `out`; the rounded bytes are also laid in shared memory, from
// which each thread collects 16 elements of a column for `transposed`. So x is read once, and both copies
// have the same bits. The largest of the block goes to *amax at the end. amax_kernel does only this, where no
// copy is wanted, and scales_kernel turns such largest values into scales and their inverses.
//
// A tile that reaches over the edge of the matrix, and every tile where packs are not aligned, takes the path
// with `whole` false, which reads and stores single elements where it must. Maxima are joined as integers, so
// their order does not show.
#include "src/cuda/kernels/quantize.hpp"

#include <algorithm>

#include "src/cuda/simt/block_sum.hpp"
#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

constexpr int threads = 256;
constexpr int side = 64;                             ///< of a tile
constexpr int pack = 8, packs_of_row = side / pack;  ///< elements per thread and step
constexpr int steps = side * packs_of_row / threads;
constexpr int column_part = 16;  ///< elements of a column per thread
constexpr unsigned max_blocks = 1056;

/// The word of a tile's row at which 4 columns lie. An odd stride, and two words more every 16 rows: the 8
/// columns and 4 groups of 16 rows that a warp reads at once lie in different banks.
HOLDFAST_DEVICE int word_of(int row, int column) { return row * 17 + row / 16 * 2 + column / 4; }
constexpr int tile_words = side * 17 + side / 16 * 2;

/// Largest of the block, to *amax.
HOLDFAST_DEVICE void grow_amax_once(std::uint32_t* amax, std::uint32_t mine, std::uint32_t* room) {
  mine = warp_max(mine);
  if (threadIdx.x % warp_size == 0) room[threadIdx.x / warp_size] = mine;
  __syncthreads();
  if (threadIdx.x < warp_size) grow_amax(amax, threadIdx.x < threads / warp_size ? room[threadIdx.x] : 0u);
}

struct Tiles {
  const std::byte* x;
  std::byte *out, *transposed;  ///< null: not wanted
  const float* scale;
  std::uint32_t* amax;  ///< null: not wanted
  std::int64_t rows, cols, stride, out_stride, transposed_stride;
  bool aligned, transposed_aligned;
};

/// What a thread does of a tile: packs are rounded, stored, and put into `tile`. Returns the largest size of
/// its elements. `whole`: all of the tile is there, in aligned packs.
template <class T, class Copy, bool whole>
HOLDFAST_DEVICE std::uint32_t quantize_packs(const Tiles& a, std::int64_t first_row,
                                             std::int64_t first_column, std::uint32_t* tile) {
  const float scale = *a.scale;
  const auto place = [](int step) { return step * threads + static_cast<int>(threadIdx.x); };
  Pack<T, pack> from[steps];
#pragma unroll
  for (int s = 0; s < steps; ++s) {
    const std::int64_t row = first_row + place(s) / packs_of_row,
                       column = first_column + place(s) % packs_of_row * pack;
    from[s] = Pack<T, pack>::template load<whole>(reinterpret_cast<const T*>(a.x) + row * a.stride + column,
                                                  row < a.rows ? a.cols - column : 0);
  }
  std::uint32_t largest = 0;
#pragma unroll
  for (int s = 0; s < steps; ++s) {
    const int row = place(s) / packs_of_row, column = place(s) % packs_of_row * pack;
    float scaled[pack];
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const float value = from[s].at(i);
      largest = size_bits(value) > largest ? size_bits(value) : largest;
      scaled[i] = value * scale;
    }
    const auto copy = Pack<Copy, pack>::of(scaled);
    tile[word_of(row, column)] = copy.word[0], tile[word_of(row, column) + 1] = copy.word[1];
    if (a.out == nullptr) continue;
    const std::int64_t left = first_row + row < a.rows ? a.cols - (first_column + column) : 0;
    copy.template store<whole>(
        reinterpret_cast<Copy*>(a.out) + (first_row + row) * a.out_stride + first_column + column, left);
  }
  return largest;
}

template <class T, class Copy>
__global__ void __launch_bounds__(threads) quantize_kernel(Tiles a) {
  SIMT_SHARED(std::uint32_t, tile, tile_words);
  SIMT_SHARED(std::uint32_t, room, threads / warp_size);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * side,
                     first_column = static_cast<std::int64_t>(blockIdx.x) * side;
  const bool whole = a.aligned && first_row + side <= a.rows && first_column + side <= a.cols;
  const std::uint32_t largest = whole ? quantize_packs<T, Copy, true>(a, first_row, first_column, tile)
                                      : quantize_packs<T, Copy, false>(a, first_row, first_column, tile);
  if (a.transposed != nullptr) {
    __syncthreads();
    const int column = static_cast<int>(threadIdx.x) / (side / column_part),
              row = static_cast<int>(threadIdx.x) % (side / column_part) * column_part;
    const std::int64_t left = a.rows - (first_row + row);
    if (first_column + column < a.cols && left > 0) {
      Pack<Copy, column_part> part;
#pragma unroll
      for (int w = 0; w < column_part / 4; ++w) {
        part.word[w] = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          part.word[w] |= (tile[word_of(row + 4 * w + i, column)] >> (column % 4 * 8) & 0xffu) << (8 * i);
      }
      Copy* const to = reinterpret_cast<Copy*>(a.transposed) + (first_column + column) * a.transposed_stride +
                       first_row + row;
      if (a.transposed_aligned && left >= column_part)
        part.store(to);
      else
        part.store_some(to, left);
    }
  }
  if (a.amax != nullptr) grow_amax_once(a.amax, largest, room);
}

template <class T, bool whole>
__global__ void __launch_bounds__(threads)
    amax_kernel(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride, std::uint32_t* amax) {
  SIMT_SHARED(std::uint32_t, room, threads / warp_size);
  constexpr int size = Pack<T>::size;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * size,
                     step = static_cast<std::int64_t>(gridDim.x) * threads * size;
  std::uint32_t largest = 0;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
#pragma unroll 4
    for (std::int64_t at = first; at < cols; at += step) {
      const auto from = Pack<T>::template load<whole>(x + row * stride + at, cols - at);
#pragma unroll
      for (int i = 0; i < size; ++i)
        largest = size_bits(from.at(i)) > largest ? size_bits(from.at(i)) : largest;
    }
  }
  grow_amax_once(amax, largest, room);
}

__global__ void __launch_bounds__(threads)
    scales_kernel(float* scale, float* inverse, const std::uint32_t* amax, DType type, int count) {
  for (int i = static_cast<int>(blockIdx.x * threads + threadIdx.x); i < count;
       i += static_cast<int>(gridDim.x) * threads) {
    scale[i] = fp8_scale(amax[i], type);
    inverse[i] = fp8_inverse(scale[i]);
  }
}

bool is_aligned(const void* data, std::int64_t stride, std::int64_t element, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0 &&
         stride * element % bytes == 0;
}

}  // namespace

void quantize(Runtime& runtime, StreamHandle stream, const ConstMat& x, const kernels::Quantize& wanted) {
  const Mat &out = wanted.out, &transposed = wanted.transposed;
  expects(!out || (out.rows == x.rows && out.cols == x.cols), "quantize: out is like x");
  expects(!transposed || (transposed.rows == x.cols && transposed.cols == x.rows),
          "quantize: transposed is cols x rows");
  if (!out && !transposed) {
    if (wanted.amax != nullptr) amax(runtime, stream, x, wanted.amax);
    return;
  }
  const DType type = out ? out.type : transposed.type;
  expects(is_fp8(type) && (!out || !transposed || out.type == transposed.type), "quantize: to e4m3 or e5m2");
  expects(wanted.scale != nullptr, "quantize: a scale");
  if (x.rows == 0 || x.cols == 0) return;
  const std::int64_t down = (x.rows + side - 1) / side, across = (x.cols + side - 1) / side;
  expects(across < std::int64_t{1} << 31 && down < 65536, "quantize: at most 4194240 rows");
  Tiles a{};
  a.x = x.data, a.out = out.data, a.transposed = transposed.data, a.scale = wanted.scale,
  a.amax = wanted.amax;
  a.rows = x.rows;
  a.cols = x.cols;
  a.stride = x.stride;
  a.out_stride = out.stride;
  a.transposed_stride = transposed.stride;
  a.aligned = is_aligned(x.data, x.stride, bytes_of(x.type), 16) &&
              (!out || is_aligned(out.data, out.stride, 1, pack));
  a.transposed_aligned = is_aligned(transposed.data, transposed.stride, 1, column_part);
  runtime.declare(stream, "quantize",
                  {reads(x), writes(out), writes(transposed), reads(wanted.scale, 4),
                   writes(wanted.amax, wanted.amax != nullptr ? 4 : 0)});
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  with_element(x.type, [&]<class T>() {
    if (type == DType::e4m3)
      SIMT_LAUNCH((quantize_kernel<T, E4m3>), grid, threads, stream, a);
    else
      SIMT_LAUNCH((quantize_kernel<T, E5m2>), grid, threads, stream, a);
  });
}

void amax(Runtime& runtime, StreamHandle stream, const ConstMat& x, std::uint32_t* amax) {
  expects(amax != nullptr, "amax: a place for it");
  if (x.rows == 0 || x.cols == 0) return;
  // Without gaps it is one row.
  const ConstMat m = x.stride == x.cols ? ConstMat{x.data, x.type, 1, x.rows * x.cols, x.rows * x.cols} : x;
  runtime.declare(stream, "amax", {reads(x), writes(amax, 4)});
  with_element(x.type, [&]<class T>() {
    const std::int64_t per_block = threads * Pack<T>::size * 4;
    const auto across =
        static_cast<unsigned>(std::min<std::int64_t>((m.cols + per_block - 1) / per_block, max_blocks));
    const auto down =
        static_cast<unsigned>(std::min<std::int64_t>(m.rows, std::max(1u, max_blocks / across)));
    const dim3 grid(across, down);
    const T* const data = m.row<const T>(0);
    if (whole_packs(m, Pack<T>::size))
      SIMT_LAUNCH((amax_kernel<T, true>), grid, threads, stream, data, m.rows, m.cols, m.stride, amax);
    else
      SIMT_LAUNCH((amax_kernel<T, false>), grid, threads, stream, data, m.rows, m.cols, m.stride, amax);
  });
}

void scales(Runtime& runtime, StreamHandle stream, float* scale, float* inverse, const std::uint32_t* amax,
            DType type, int count) {
  expects(is_fp8(type) && count >= 0, "scales: of 8-bit numbers");
  if (count == 0) return;
  const auto blocks =
      static_cast<unsigned>(std::min((count + threads - 1) / threads, static_cast<int>(max_blocks)));
  runtime.declare(stream, "scales",
                  {reads(amax, 4 * std::int64_t{count}), writes(scale, 4 * std::int64_t{count}),
                   writes(inverse, 4 * std::int64_t{count})});
  SIMT_LAUNCH(scales_kernel, blocks, threads, stream, scale, inverse, amax, type, count);
}

}  // namespace holdfast::cuda
