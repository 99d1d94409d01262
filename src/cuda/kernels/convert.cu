#include "src/cuda/kernels/convert.hpp"

#include <algorithm>

#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

constexpr int threads = 256;
constexpr int pack = 8;  ///< elements per thread
constexpr int start_threads = 1024, start_packs = 2;
constexpr std::int64_t start =
    start_threads * start_packs * pack;  ///< elements converted in place by one block

bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

template <class To, class From, bool whole>
HOLDFAST_DEVICE Pack<To, pack> converted(const From* in, std::int64_t left) {
  const auto from = Pack<From, pack>::template load<whole>(in, left);
  float x[pack];
#pragma unroll
  for (int i = 0; i < pack; ++i) x[i] = from.at(i);
  return Pack<To, pack>::of(x);
}

template <class To, class From>
__global__ void __launch_bounds__(threads)
    convert_kernel(To* out, const From* in, std::int64_t count, bool aligned) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * pack,
                     left = count - at;
  if (left <= 0) return;
  if (aligned && left >= pack)
    converted<To, From, true>(in + at, left).template store<true>(out + at, left);
  else
    converted<To, From, false>(in + at, left).template store<false>(out + at, left);
}

/// The first elements in place: all of them are read before one is written.
template <class To, class From>
__global__ void __launch_bounds__(start_threads)
    convert_start_kernel(To* out, const From* in, std::int64_t count) {
  Pack<To, pack> result[start_packs];
#pragma unroll
  for (int p = 0; p < start_packs; ++p) {
    const int at = (p * start_threads + static_cast<int>(threadIdx.x)) * pack;
    result[p] = converted<To, From, false>(in + at, count - at);
  }
  __syncthreads();
#pragma unroll
  for (int p = 0; p < start_packs; ++p) {
    const int at = (p * start_threads + static_cast<int>(threadIdx.x)) * pack;
    result[p].template store<false>(out + at, count - at);
  }
}

template <class To, class From>
void convert_apart(Runtime& runtime, StreamHandle stream, To* out, const From* in, std::int64_t count) {
  constexpr std::int64_t per_block = threads * pack;
  const std::int64_t blocks = (count + per_block - 1) / per_block;
  expects(blocks < std::int64_t{1} << 31, "convert: blocks are counted in 31 bits");
  runtime.declare(
      stream, "convert",
      {reads(in, count * std::int64_t{sizeof(From)}), writes(out, count * std::int64_t{sizeof(To)})});
  SIMT_LAUNCH((convert_kernel<To, From>), static_cast<unsigned>(blocks), threads, stream, out, in, count,
              is_aligned(out) && is_aligned(in));
}

template <class To, class From>
void convert_in_place(Runtime& runtime, StreamHandle stream, To* out, const From* in, std::int64_t count) {
  std::int64_t done = std::min(count, start);
  runtime.declare(
      stream, "convert: start",
      {reads(in, done * std::int64_t{sizeof(From)}), writes(out, done * std::int64_t{sizeof(To)})});
  SIMT_LAUNCH((convert_start_kernel<To, From>), 1, start_threads, stream, out, in, done);
  while (done < count) {
    const std::int64_t end = std::min(count, 2 * done);
    convert_apart(runtime, stream, out + done, in + done, end - done);
    done = end;
  }
}

}  // namespace

void convert(Runtime& runtime, StreamHandle stream, void* out, kernels::DType to, const void* in,
             kernels::DType from, std::int64_t count) {
  expects(count >= 0, "convert: a number of elements");
  expects(!is_fp8(to) && !is_fp8(from), "convert: fp32 and bf16");
  if (count == 0) return;
  if (to == from) {
    if (out != in) runtime.copy(stream, out, in, count * bytes_of(to));
    return;
  }
  if (to == DType::fp32) {
    expects(out != in, "convert: in place only to the narrower type");
    convert_apart(runtime, stream, static_cast<float*>(out), static_cast<const Bf16*>(in), count);
  } else if (out != in) {
    convert_apart(runtime, stream, static_cast<Bf16*>(out), static_cast<const float*>(in), count);
  } else {
    convert_in_place(runtime, stream, static_cast<Bf16*>(out), static_cast<const float*>(in), count);
  }
}

}  // namespace holdfast::cuda
