#include "src/cuda/kernels/squares.hpp"

#include <algorithm>
#include <bit>

#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/exact_sum.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

constexpr int threads = 256;
constexpr int packs = 4;  ///< of 4 elements, in flight per thread
constexpr int batch = 4 * packs;
constexpr std::int64_t tile = threads * batch;

// The scheme is that of src/kernels/exact_squares.cpp: the square of a float is exact in a double; adding 1.5
// * 2^52 units to it rounds it to a whole number of units, which stands in the low bits of the sum, so that
// bit patterns can be added as integers. What was rounded away is exact again and goes to the next, finer
// unit; the finest is that of ExactSum, whose terms are cut off, not rounded, so one too much is taken back.
//
// Two units do for |x| < 2^10, a third one for |x| < 2^31. A thread's integers stay below 2^63 for
// `max_batches`.
constexpr int finest = -exact::fraction_bits, middle = -30, high = 20;  // log2 of the units
constexpr float limit_of_two = 0x1p10f, limit_of_three = 0x1p31f;
constexpr int max_batches = 256;

constexpr std::uint64_t magic_bits(int unit) {
  return static_cast<std::uint64_t>(1023 + 52 + unit) << 52 | std::uint64_t{1} << 51;
}
constexpr double magic(int unit) { return std::bit_cast<double>(magic_bits(unit)); }

struct Integers {
  std::uint64_t high, middle, finest;  ///< two's complement, in their units
};

HOLDFAST_DEVICE std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

template <bool three>
HOLDFAST_DEVICE void cut(Integers& sum, const float (&x)[batch]) {
  constexpr double a = magic(high), b = magic(middle), c = magic(finest);
#pragma unroll
  for (int i = 0; i < batch; ++i) {
    const double d = static_cast<double>(x[i]);
    double rest = d * d;
    if constexpr (three) {
      const double q = rest + a;
      sum.high += bits(q);
      rest -= q - a;
    }
    const double q = rest + b;
    sum.middle += bits(q);
    rest -= q - b;
    const double r = rest + c;
    sum.finest += bits(r) - (r - c > rest ? 1 : 0);
  }
  // Without the patterns of the constants.
  if constexpr (three) sum.high -= batch * magic_bits(high);
  sum.middle -= batch * magic_bits(middle);
  sum.finest -= batch * magic_bits(finest);
}

HOLDFAST_DEVICE void flush(ExactWords& sum, Integers& part) {
  exact::add_units(sum, static_cast<std::int64_t>(part.high), high - finest);
  exact::add_units(sum, static_cast<std::int64_t>(part.middle), middle - finest);
  exact::add_units(sum, static_cast<std::int64_t>(part.finest), 0);
  part = {0, 0, 0};
}

/// Element 4 * (p * threads + thread) of the tile begins pack p. Zeros behind the end: they add nothing.
template <bool whole>
HOLDFAST_DEVICE void load(float (&x)[batch], const float* tile_of_x, std::int64_t left) {
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    const int at = 4 * (p * threads + static_cast<int>(threadIdx.x));
    const auto pack = Pack<float>::load<whole>(tile_of_x + at, left - at);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[4 * p + i] = pack.at(i);
  }
}

/// The sum of a block's tiles, to `parts`; of a single block at once to `sum`.
__global__ void __launch_bounds__(threads)
    squares_kernel(const float* x, std::int64_t count, bool aligned, ExactWords* parts, ExactWords* sum) {
  SIMT_SHARED(ExactWords, room, threads / 32);
  ExactWords mine = exact::zero();
  Integers part = {0, 0, 0};
  int batches = 0;
  for (std::int64_t first = blockIdx.x * tile; first < count; first += gridDim.x * tile) {
    float v[batch];
    if (aligned && first + tile <= count)
      load<true>(v, x + first, tile);
    else
      load<false>(v, x + first, count - first);
    bool two = true, three = true;  // false for a NaN
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      two = two && fabsf(v[i]) < limit_of_two;
      three = three && fabsf(v[i]) < limit_of_three;
    }
    if (two)
      cut<false>(part, v);
    else if (three)
      cut<true>(part, v);
    else {
#pragma unroll 1
      for (int i = 0; i < batch; ++i) {
        // Chosen without an address, so that v stays in registers.
        float chosen = 0;
#pragma unroll
        for (int j = 0; j < batch; ++j) chosen = j == i ? v[j] : chosen;
        exact::add_square(mine, chosen);
      }
    }
    if (++batches == max_batches) {
      flush(mine, part);
      batches = 0;
    }
  }
  flush(mine, part);
  const ExactWords total = exact::block_total(mine, room);
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1)
    exact::add(*sum, total);
  else
    parts[blockIdx.x] = total;
}

__global__ void __launch_bounds__(threads)
    add_parts_kernel(const ExactWords* parts, int count, ExactWords* sum) {
  SIMT_SHARED(ExactWords, room, threads / 32);
  ExactWords mine = exact::zero();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) exact::add(mine, parts[i]);
  const ExactWords total = exact::block_total(mine, room);
  if (threadIdx.x == 0) exact::add(*sum, total);
}

}  // namespace

std::int64_t sum_squares_scratch() {
  return sum_squares_blocks * static_cast<std::int64_t>(sizeof(ExactWords));
}

void sum_squares(Runtime& runtime, StreamHandle stream, const float* x, std::int64_t count,
                 tensor::ExactSum* sum, std::byte* scratch, int max_blocks) {
  expects(count >= 0 && sum != nullptr, "sum_squares: a sum to add to");
  expects(0 < max_blocks && max_blocks <= sum_squares_blocks,
          "sum_squares: as many blocks as there is scratch for");
  if (count == 0) return;
  const auto blocks = static_cast<int>(std::min<std::int64_t>((count + tile - 1) / tile, max_blocks));
  const bool aligned = reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
  auto* const words = reinterpret_cast<ExactWords*>(sum);
  auto* const parts = reinterpret_cast<ExactWords*>(scratch);
  const std::int64_t sum_bytes = sizeof(tensor::ExactSum), parts_bytes = blocks > 1 ? blocks * sum_bytes : 0;
  expects(blocks == 1 || parts != nullptr, "sum_squares: scratch for the blocks' sums");
  runtime.declare(stream, "sum_squares",
                  {reads(x, count * 4), writes(parts, parts_bytes), writes(sum, blocks > 1 ? 0 : sum_bytes)});
  SIMT_LAUNCH(squares_kernel, static_cast<unsigned>(blocks), threads, stream, x, count, aligned, parts,
              words);
  if (blocks == 1) return;
  runtime.declare(stream, "sum_squares: blocks", {reads(parts, parts_bytes), writes(sum, sum_bytes)});
  SIMT_LAUNCH(add_parts_kernel, 1, threads, stream, parts, blocks, words);
}

}  // namespace holdfast::cuda
