#pragma once
// What the processor's bf16 multiplying instructions give in a loop without memory, for benchmarks to compare
// with.
#include <cstdint>
#include <ctime>

#include "src/kernels/bf16_block.hpp"

namespace holdfast::testing {

/// Time of all threads of this process on a processor: what others do on the machine counts less than by the
/// clock on the wall.
inline double seconds_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Multiplies and adds in registers only; returns the number of floating point operations, 0 for a path
/// without such instructions.
inline double spin(kernels::Bf16Path path) {
#if defined(__x86_64__)
  if (path == kernels::Bf16Path::avx512) {
    long rounds = 100000;  // 12 independent sums: more than the instruction's latency
    asm volatile(
        "1:\n"
        "vdpbf16ps %%zmm12, %%zmm12, %%zmm0\n vdpbf16ps %%zmm12, %%zmm12, %%zmm1\n"
        "vdpbf16ps %%zmm12, %%zmm12, %%zmm2\n vdpbf16ps %%zmm12, %%zmm12, %%zmm3\n"
        "vdpbf16ps %%zmm12, %%zmm12, %%zmm4\n vdpbf16ps %%zmm12, %%zmm12, %%zmm5\n"
        "vdpbf16ps %%zmm12, %%zmm12, %%zmm6\n vdpbf16ps %%zmm12, %%zmm12, %%zmm7\n"
        "vdpbf16ps %%zmm12, %%zmm12, %%zmm8\n vdpbf16ps %%zmm12, %%zmm12, %%zmm9\n"
        "vdpbf16ps %%zmm12, %%zmm12, %%zmm10\n vdpbf16ps %%zmm12, %%zmm12, %%zmm11\n"
        "dec %0\n jnz 1b\n vzeroupper\n"
        : "+r"(rounds)
        :
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12");
    return 100000 * 12 * 64.0;
  }
  if (path == kernels::Bf16Path::amx) {
    struct alignas(64) {
      unsigned char palette = 1, start_row = 0, reserved[14] = {};
      unsigned short bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } tiles;
    long rounds = 20000;
    asm volatile(
        "ldtilecfg %1\n"
        "1:\n"
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n"
        "dec %0\n jnz 1b\n tilerelease\n"
        : "+r"(rounds)
        : "m"(tiles)
        : "cc");
    return 20000 * 4 * 2.0 * 16 * 16 * 32;
  }
#endif
  return 0;
}

/// Operations per second of spin() on `threads` threads together.
inline double peak(kernels::Bf16Path path, int threads) {
  const double start = seconds_now();
  double operations = 0;
#pragma omp parallel num_threads(threads) reduction(+ : operations)
  operations += spin(path);
  return operations * threads / (seconds_now() - start);
}

}  // namespace holdfast::testing
