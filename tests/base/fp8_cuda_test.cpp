// Conversions to 8 bits against those of the CUDA toolkit, which run on the host too.
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <random>

#include "src/base/fp8.hpp"

namespace holdfast {
namespace {

void check(std::uint32_t bits) {
  const auto x = std::bit_cast<float>(bits);
  ASSERT_EQ(to_e4m3(x).bits, __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)) << std::hexfloat << x;
  ASSERT_EQ(to_e5m2(x).bits, __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2)) << std::hexfloat << x;
}

TEST(Fp8OfCuda, EveryBf16IsTheSame) {
  for (std::uint32_t upper = 0; upper < 1 << 16; ++upper) check(upper << 16);
}

TEST(Fp8OfCuda, RandomFloatsAreTheSame) {
  std::mt19937 generator(3);
  for (int i = 0; i < 1 << 22; ++i) check(static_cast<std::uint32_t>(generator()));
}

/// Around every boundary of rounding: the bits that both types drop are all 0, or half of it, or next to
/// these.
TEST(Fp8OfCuda, BoundariesAreTheSame) {
  for (std::uint32_t upper = 0; upper < 1 << 13; ++upper)
    for (int shift = 18; shift <= 22; ++shift)
      for (const std::uint32_t near : {-1, 0, 1})
        check((upper << 19) + (1u << shift) + near), check((upper << 19) + near);
}

TEST(Fp8OfCuda, EveryNumberIsReadTheSame) {
  auto same = [](float a, float b) { return a == b || (a != a && b != b); };
  for (int bits = 0; bits < 256; ++bits) {
    __nv_fp8_e4m3 a;
    __nv_fp8_e5m2 b;
    a.__x = b.__x = static_cast<__nv_fp8_storage_t>(bits);
    EXPECT_TRUE(same(to_float(E4m3{a.__x}), static_cast<float>(a))) << bits;
    EXPECT_TRUE(same(to_float(E5m2{b.__x}), static_cast<float>(b))) << bits;
  }
}

}  // namespace
}  // namespace holdfast
