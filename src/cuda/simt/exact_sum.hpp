#pragma once
// tensor::ExactSum as GPU threads see it: 64-bit words, added to in place. Integers, so that no order of
// threads and blocks shows; the same words as the host's class for the same terms.
#include <bit>
#include <cstdint>

#include "src/cuda/simt/simt.hpp"
#include "src/tensor/exact_sum.hpp"

namespace holdfast::cuda {

/// The words of a tensor::ExactSum.
struct ExactWords {
  std::uint64_t low, middle, high;  ///< 192 bits in units of 2^-80
  std::uint64_t overflows, nans;
  std::uint64_t unused;  ///< what aligns tensor::ExactSum
};
static_assert(sizeof(ExactWords) == sizeof(tensor::ExactSum) && std::endian::native == std::endian::little);
static_assert(tensor::ExactSum::words_are_at(0, 16, 24, 32));

namespace exact {

constexpr int fraction_bits = tensor::ExactSum::fraction_bits, limit_bits = tensor::ExactSum::limit_bits;

__device__ inline ExactWords zero() { return {0, 0, 0, 0, 0, 0}; }

__device__ inline void add_wide(ExactWords& sum, std::uint64_t low, std::uint64_t middle,
                                std::uint64_t high) {
  sum.low += low;
  const std::uint64_t carry = sum.low < low ? 1 : 0;
  sum.middle += middle;
  std::uint64_t carries = sum.middle < middle ? 1 : 0;
  sum.middle += carry;
  carries += sum.middle < carry ? 1 : 0;
  sum.high += high + carries;
}
__device__ inline void add(ExactWords& sum, const ExactWords& other) {
  add_wide(sum, other.low, other.middle, other.high);
  sum.overflows += other.overflows;
  sum.nans += other.nans;
}
/// Adds count * 2^shift units, 0 <= shift < 128. The count may be negative where others make up for it.
__device__ inline void add_units(ExactWords& sum, std::int64_t count, int shift) {
  const auto bits = static_cast<std::uint64_t>(count);
  const auto sign = static_cast<std::uint64_t>(count < 0 ? -1 : 0);
  const int part = shift & 63;
  const std::uint64_t lower = bits << part;
  const std::uint64_t upper = part == 0 ? sign : static_cast<std::uint64_t>(count >> (64 - part));
  if (shift < 64)
    add_wide(sum, lower, upper, sign);
  else
    add_wide(sum, 0, lower, upper);
}

/// Adds significand * 2^shift units; what lies below one is cut off.
__device__ inline void add_shifted(ExactWords& sum, std::uint64_t significand, int shift, bool infinite,
                                   bool nan) {
  int width = 0;
  for (std::uint64_t rest = significand; rest != 0; rest >>= 1) ++width;
  if (nan) {
    ++sum.nans;
  } else if (infinite || (shift > 0 && shift + width > limit_bits + fraction_bits)) {
    ++sum.overflows;
  } else if (shift <= 0) {
    if (shift > -64) add_wide(sum, significand >> -shift, 0, 0);
  } else {
    const int part = shift & 63;
    const std::uint64_t lower = significand << part, upper = part == 0 ? 0 : significand >> (64 - part);
    if (shift < 64)
      add_wide(sum, lower, upper, 0);
    else if (shift < 128)
      add_wide(sum, 0, lower, upper);
    else
      add_wide(sum, 0, 0, lower);
  }
}
/// As tensor::ExactSum::add_square().
__device__ inline void add_square(ExactWords& sum, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto exponent = static_cast<int>(bits >> 23 & 0xff);
  std::uint64_t significand = bits & 0x7fffff;
  if (exponent != 0) significand |= 0x800000;
  add_shifted(sum, significand * significand, 2 * exponent - 300 + fraction_bits, exponent == 0xff,
              (bits & 0x7fffffff) > 0x7f800000);
}
/// As tensor::ExactSum::add().
__device__ inline void add_number(ExactWords& sum, double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
  std::uint64_t significand = bits & 0xfffffffffffff;
  if (exponent != 0) significand |= 1ull << 52;
  add_shifted(sum, significand, exponent - 1075 + fraction_bits, exponent == 0x7ff, x < 0 || x != x);
}

/// The threads' sums, in thread 0. Called by the whole block, a multiple of 32 threads; `room`: shared, one
/// per warp.
__device__ inline ExactWords block_total(ExactWords mine, ExactWords* room) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (unsigned step = 16; step > 0; step /= 2) {
    ExactWords other = zero();
    other.low = __shfl_down_sync(0xffffffffu, mine.low, step);
    other.middle = __shfl_down_sync(0xffffffffu, mine.middle, step);
    other.high = __shfl_down_sync(0xffffffffu, mine.high, step);
    other.overflows = __shfl_down_sync(0xffffffffu, mine.overflows, step);
    other.nans = __shfl_down_sync(0xffffffffu, mine.nans, step);
    add(mine, other);  // only lane 0's sum is whole in the end
  }
  if (lane == 0) room[warp] = mine;
  __syncthreads();
  if (threadIdx.x == 0)
    for (unsigned w = 1; w < blockDim.x / 32; ++w) add(mine, room[w]);
  return mine;
}

}  // namespace exact

}  // namespace holdfast::cuda
