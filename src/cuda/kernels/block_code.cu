// A thread decodes eight elements, an eighth of a block.
#include "src/cuda/kernels/block_code.hpp"

#include "src/base/error.hpp"
#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

constexpr int threads = 256, pack = 8;

template <class T, bool whole>
__global__ void __launch_bounds__(threads) decode_kernel(T* out, BlockCode code, const std::uint8_t* codes,
                                                         const float* scales, std::int64_t count) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * pack;
  if (at >= count) return;
  const float scale = scales[at / code_block];
  float x[pack];
#pragma unroll
  for (int e = 0; e < pack; ++e)
    x[e] = code == BlockCode::int8 ? decode(code, codes[at + e], false, scale)
                                   : decode(code, codes[(at + e) / 2], e % 2 == 1, scale);
  Pack<T, pack>::of(x).template store<whole>(out + at, count - at);
}

}  // namespace

void decode_blocks(Runtime& runtime, StreamHandle stream, void* out, kernels::DType to, BlockCode code,
                   const std::byte* codes, const float* scales, std::int64_t count) {
  expects(count % code_block == 0, "decode_blocks: whole blocks");
  if (count == 0) return;
  constexpr std::int64_t per_block = threads * pack;
  const std::int64_t blocks = (count + per_block - 1) / per_block;
  expects(blocks < std::int64_t{1} << 31, "decode_blocks: blocks are counted in 31 bits");
  runtime.declare(stream, "decode blocks",
                  {reads(codes, code_bytes(code, count)), reads(scales, scale_bytes(count)),
                   writes(out, count * bytes_of(to))});
  const bool whole = reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
  with_element(to, [&]<class T>() {
    const auto launch = [&]<bool aligned>() {
      SIMT_LAUNCH((decode_kernel<T, aligned>), static_cast<unsigned>(blocks), threads, stream,
                  static_cast<T*>(out), code, reinterpret_cast<const std::uint8_t*>(codes), scales, count);
    };
    whole ? launch.template operator()<true>() : launch.template operator()<false>();
  });
}

}  // namespace holdfast::cuda
