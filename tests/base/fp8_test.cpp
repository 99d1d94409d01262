// Conversions to 8 bits against their definition: of all numbers of the type the nearest, in fp64.
#include "src/base/fp8.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace holdfast {
namespace {

/// The value of 8 bits, from the definition of the format.
double value_of(int bits, int mantissa, int bias) {
  const int exponent = (bits & 0x7f) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
  const double size = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                                    : std::ldexp((1 << mantissa) + fraction, exponent - bias - mantissa);
  return (bits & 0x80) != 0 ? -size : size;
}

/// The non-negative finite numbers of a type: the index is the bits.
template <class T>
struct Definition;
template <>
struct Definition<E4m3> {
  static constexpr int mantissa = 3, bias = 7, largest = 0x7e;
};
template <>
struct Definition<E5m2> {
  static constexpr int mantissa = 2, bias = 15, largest = 0x7b;
};

template <class T>
class Fp8 : public ::testing::Test {
 protected:
  using D = Definition<T>;
  Fp8() {
    for (int bits = 0; bits <= D::largest; ++bits) numbers.push_back(value_of(bits, D::mantissa, D::bias));
  }
  int nearest(float x) const {
    if (std::isnan(x)) return 0x7f;
    const double size = std::fabs(static_cast<double>(x));
    const auto above = std::lower_bound(numbers.begin(), numbers.end(), size);
    auto bits = static_cast<int>(above - numbers.begin());
    if (above == numbers.end()) {
      bits = D::largest;
    } else if (bits > 0) {
      const double up = *above - size, down = size - *(above - 1);
      if (down < up || (down == up && bits % 2 != 0)) --bits;
    }
    return std::signbit(x) ? bits | 0x80 : bits;
  }
  void check(std::uint32_t bits) const {
    const auto x = std::bit_cast<float>(bits);
    ASSERT_EQ(int{to_fp8<T>(x).bits}, nearest(x)) << std::hexfloat << x;
  }
  std::vector<double> numbers;
};
using Types = ::testing::Types<E4m3, E5m2>;
TYPED_TEST_SUITE(Fp8, Types);

TYPED_TEST(Fp8, EveryBf16GoesToTheNearest) {
  for (std::uint32_t upper = 0; upper < 1 << 16; ++upper) this->check(upper << 16);
}

TYPED_TEST(Fp8, RandomFloatsGoToTheNearest) {
  std::mt19937 generator(1);
  for (int i = 0; i < 1 << 21; ++i) this->check(static_cast<std::uint32_t>(generator()));
}

TYPED_TEST(Fp8, BoundariesAndTheirNeighboursGoToTheNearest) {
  auto around = [&](double at) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(at));
    for (const std::uint32_t sign : {0u, 0x80000000u})
      for (const std::uint32_t near : {bits - 2, bits - 1, bits, bits + 1, bits + 2})
        this->check(near | sign);
  };
  for (std::size_t i = 1; i < this->numbers.size(); ++i)
    around(this->numbers[i]), around((this->numbers[i - 1] + this->numbers[i]) / 2);
  const double last = this->numbers.back(), before = this->numbers[this->numbers.size() - 2];
  around(last + (last - before) / 2), around(last + (last - before));
  for (const std::uint32_t bits : {0u, 1u, 0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fc00000u, 0x7fffffffu})
    this->check(bits), this->check(bits | 0x80000000);
}

TYPED_TEST(Fp8, EveryNumberIsReadAndComesBack) {
  constexpr int mantissa = Definition<TypeParam>::mantissa, bias = Definition<TypeParam>::bias;
  for (int bits = 0; bits < 256; ++bits) {
    const TypeParam x{static_cast<std::uint8_t>(bits)};
    if ((bits & 0x7f) <= Definition<TypeParam>::largest) {
      EXPECT_EQ(to_float(x), value_of(bits, mantissa, bias)) << bits;
      EXPECT_EQ(to_fp8<TypeParam>(to_float(x)), x) << bits;
    } else if (dtype_of<TypeParam>() == DType::e5m2 && (bits & 3) == 0) {
      EXPECT_EQ(to_float(x), (bits & 0x80) != 0 ? -INFINITY : INFINITY);
    } else {
      EXPECT_TRUE(std::isnan(to_float(x))) << bits;
    }
  }
}

TYPED_TEST(Fp8, TheScaleIsTheLargestThatFits) {
  const DType type = dtype_of<TypeParam>();
  const double most = fp8_max(type);
  EXPECT_EQ(most, this->numbers.back());
  std::mt19937 generator(2);
  for (int i = 0; i < 1 << 20; ++i) {
    // The edges of every exponent's range, then anything.
    const std::uint32_t exponent = static_cast<std::uint32_t>(i / 4 % 256) << 23;
    const std::uint32_t edges[] = {exponent, exponent | 0x5fffff, exponent | 0x600000, exponent | 0x600001};
    const std::uint32_t bits = i < 1024 ? edges[i % 4] : static_cast<std::uint32_t>(generator()) & 0x7fffffff;
    const float scale = fp8_scale(bits, type), inverse = fp8_inverse(scale);
    ASSERT_EQ(scale * inverse, 1.0f);
    ASSERT_TRUE(std::isnormal(scale) && std::isnormal(inverse));
    const auto amax = static_cast<double>(std::bit_cast<float>(bits));
    if (bits == 0 || bits >= 0x7f800000) {
      ASSERT_EQ(scale, 1.0f);
      continue;
    }
    ASSERT_LE(amax * scale, most) << std::hexfloat << amax;
    ASSERT_TRUE(scale == 0x1p126f || amax * scale * 2 > most) << std::hexfloat << amax;
  }
}

static_assert(to_e4m3(448).bits == 0x7e && to_e5m2(-57344).bits == 0xfb && to_float(E4m3{0x01}) == 0x1p-9f);

}  // namespace
}  // namespace holdfast
