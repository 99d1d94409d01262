// Weights in few bits, decoded on the CPU.
#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

template <class T>
HOLDFAST_VECTOR_WIDTHS void decode_int8(T* out, const std::int8_t* codes, float scale) {
  const float unit = scale * (1.0f / 127.0f);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < code_block; ++i) out[i] = rounded<T>(static_cast<float>(codes[i]) * unit);
}

template <class T>
void decode_nf4(T* out, const std::uint8_t* codes, float scale) {
  T values[16];
  for (std::size_t v = 0; v < nf4_values.size(); ++v) values[v] = rounded<T>(nf4_values[v] * scale);
  for (std::int64_t i = 0; i < code_block / 2; ++i) {
    out[2 * i] = values[codes[i] & 15];
    out[2 * i + 1] = values[codes[i] >> 4];
  }
}

}  // namespace

void CpuKernels::decode_blocks(Stream&, void* out, DType to, BlockCode code, const std::byte* codes,
                               const float* scales, std::int64_t count) {
  expects(count % code_block == 0, "decode_blocks: whole blocks");
  with_type(to, [&]<class T>() {
    run_parts(count / code_block, code_block, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t b = first; b < end; ++b) {
        T* const block = static_cast<T*>(out) + b * code_block;
        const std::byte* const from = codes + code_bytes(code, b * code_block);
        if (code == BlockCode::int8)
          decode_int8(block, reinterpret_cast<const std::int8_t*>(from), scales[b]);
        else
          decode_nf4(block, reinterpret_cast<const std::uint8_t*>(from), scales[b]);
      }
    });
  });
}

}  // namespace holdfast::kernels
