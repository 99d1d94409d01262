// AMX's tile instructions, and the permission to use them.
#include "src/kernels/bf16_amx.hpp"

#include "src/kernels/bf16_paths.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace holdfast::kernels {

namespace {

struct ProcessorTiles {
  static void configure() {
    struct alignas(64) Configuration {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Configuration all{};
    static_assert(sizeof(Configuration) == 64);
    asm volatile("ldtilecfg %0" ::"m"(all));
  }
  static void release() { asm volatile("tilerelease"); }
  template <int tile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  template <int tile>
  static void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  static void store(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
  template <int c, int a, int b>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
};

/// The processor has AMX-BF16 and AVX-512, and the kernel lets this process use tiles: without its permission
/// the first tile instruction is an illegal one.
bool usable() {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return false;
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & amx_bf16) == 0 || (d & amx_tile) == 0)
    return false;
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace

const Bf16Blocks* amx_blocks() {
  static const bool has_amx = usable();
  static const AmxBlocks<ProcessorTiles> blocks;
  return has_amx ? &blocks : nullptr;
}

}  // namespace holdfast::kernels

#else

namespace holdfast::kernels {
const Bf16Blocks* amx_blocks() { return nullptr; }
}  // namespace holdfast::kernels

#endif
