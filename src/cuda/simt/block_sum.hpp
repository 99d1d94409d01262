#pragma once
// Sums and maxima over the threads of a warp and of a block. The order of every sum is fixed by the number of
// threads.
#include <cstdint>

#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

constexpr int warp_size = 32;
/// Floats that block_sum() needs.
constexpr int block_sum_words = 32;

/// Every lane gets the sum: neighbours first, then pairs of pairs, ... All lanes of the warp call.
HOLDFAST_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) x += __shfl_xor_sync(~0u, x, distance);
  return x;
}

HOLDFAST_DEVICE unsigned warp_max(unsigned x) {
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const unsigned other = __shfl_xor_sync(~0u, x, distance);
    x = other > x ? other : x;
  }
  return x;
}

/// Every thread gets the sum of the block's whole warps. `shared`: block_sum_words floats, which are the
/// block's again after its next barrier: two calls without one between them take two of these.
HOLDFAST_DEVICE float block_sum(float x, float* shared) {
  x = warp_sum(x);
  const unsigned warps = blockDim.x / warp_size, lane = threadIdx.x % warp_size;
  if (warps == 1) return x;
  if (lane == 0) shared[threadIdx.x / warp_size] = x;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

/// *amax = max(*amax, every thread's `mine`), for size_bits(). All lanes of the warp call.
HOLDFAST_DEVICE void grow_amax(unsigned* amax, unsigned mine) {
  mine = warp_max(mine);
  // It only grows, so an old value can at worst ask for an atomic that changes nothing; most warps need none.
  if (threadIdx.x % warp_size == 0 && mine > *static_cast<const volatile unsigned*>(amax))
    atomicMax(amax, mine);
}

}  // namespace holdfast::cuda
