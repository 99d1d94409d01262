// Sums of integers, so that blocks may add theirs in any order. Neighbouring threads read neighbouring
// elements.
#include "src/cuda/kernels/digest.hpp"

#include <algorithm>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/cuda/simt/block_sum.hpp"
#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

constexpr int threads = 256;
constexpr int in_flight = 8;  ///< elements of a thread
constexpr std::int64_t max_blocks = 132 * 8;

using Word64 = unsigned long long;  // as atomicAdd() has it

template <class Word>
__global__ void __launch_bounds__(threads)
    digest_kernel(const Word* x, std::uint64_t first, std::int64_t count, kernels::DigestSums* sums) {
  constexpr Word exponent = exponent_bits<Word>;
  constexpr std::int64_t tile = threads * in_flight;
  std::uint64_t sum = 0, not_finite = 0;
  for (std::int64_t begin = blockIdx.x * tile; begin < count; begin += gridDim.x * tile) {
    Word bits[in_flight];
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      const std::int64_t at = begin + i * threads + threadIdx.x;
      bits[i] = at < count ? x[at] : Word{0};
    }
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      const std::int64_t at = begin + i * threads + threadIdx.x;
      if (at >= count) break;
      sum += digest_element(first + static_cast<std::uint64_t>(at), bits[i]);
      not_finite += (bits[i] & exponent) == exponent ? 1 : 0;
    }
  }
  constexpr unsigned all = 0xffffffffu;
#pragma unroll
  for (int lanes = warp_size / 2; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(all, sum, lanes);
    not_finite += __shfl_xor_sync(all, not_finite, lanes);
  }
  if (threadIdx.x % warp_size != 0) return;
  atomicAdd(reinterpret_cast<Word64*>(&sums->digest), static_cast<Word64>(sum));
  if (not_finite > 0)
    atomicAdd(reinterpret_cast<Word64*>(&sums->not_finite), static_cast<Word64>(not_finite));
}

}  // namespace

void digest(Runtime& runtime, StreamHandle stream, const void* x, kernels::DType type, std::int64_t first,
            std::int64_t count, kernels::DigestSums* sums) {
  expects(type == kernels::DType::fp32 || type == kernels::DType::bf16, "digest: of fp32 or bf16");
  if (count == 0) return;
  runtime.declare(stream, "digest",
                  {reads(x, count * bytes_of(type)), reads(sums, sizeof *sums), writes(sums, sizeof *sums)});
  constexpr std::int64_t tile = threads * in_flight;
  const auto blocks = static_cast<unsigned>(std::min(max_blocks, (count + tile - 1) / tile));
  const auto from = static_cast<std::uint64_t>(first);
  if (type == kernels::DType::fp32)
    SIMT_LAUNCH(digest_kernel<std::uint32_t>, blocks, threads, stream, static_cast<const std::uint32_t*>(x),
                from, count, sums);
  else
    SIMT_LAUNCH(digest_kernel<std::uint16_t>, blocks, threads, stream, static_cast<const std::uint16_t*>(x),
                from, count, sums);
}

}  // namespace holdfast::cuda
