// Angle tables of rotary positions, plain and stretched, in every type.
#include "src/base/as_size.hpp"
#include "tests/kernels/compare.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

constexpr std::int64_t positions = 300, half = 64;
constexpr double theta = 500'000;

template <class T>
class RopeTable : public ::testing::Test {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(RopeTable, Types);

/// No number of the type is nearer to `want` than `got`.
template <class T>
bool is_nearest(T got, double want) {
  const double value = tensor::to_float(got), distance = std::fabs(value - want);
  double step = 0;
  if constexpr (std::is_same_v<T, float>)
    step = std::nextafter(got, INFINITY) - value;
  else
    step = std::ldexp(1.0, (want == 0 ? 0 : std::ilogb(value)) - 7);
  return distance <= step / 2;
}

template <class T>
void check_table(const RopeScaling& s) {
  std::vector<T> cosine(positions * half), sine(cosine.size());
  rope_table(matrix(cosine, half), matrix(sine, half), theta, s);
  const reference::Stretch stretch = {s.factor, s.low_frequency, s.high_frequency, s.original_sequence};
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * reference::rope_frequency(i, half, theta, stretch);
      const auto at = as_size(p * half + i);
      // The reference may be an ulp of fp64 away, which moves a halfway case of these types hardly ever:
      // never for the numbers below.
      ASSERT_TRUE(is_nearest(cosine[at], std::cos(angle))) << p << " " << i;
      ASSERT_TRUE(is_nearest(sine[at], std::sin(angle))) << p << " " << i;
    }
}

TYPED_TEST(RopeTable, IsRoundedOnceFromFp64) { check_table<TypeParam>({}); }
TYPED_TEST(RopeTable, StretchesLongWavelengths) { check_table<TypeParam>({8, 1, 4, 8192}); }

/// The angular frequency of pair i, from the tables at position 1.
double frequency(const RopeScaling& s, std::int64_t i) {
  Floats cosine(2 * half), sine(cosine.size());
  rope_table(view(cosine, half), view(sine, half), theta, s);
  return std::atan2(sine[half + i], cosine[half + i]);
}

TEST(RopeScalingOfLlama3, KeepsShortWavesDividesLongOnesAndBlendsBetween) {
  const RopeScaling scaling = {8, 1, 4, 8192};
  int kept = 0, divided = 0, blended = 0;
  for (std::int64_t i = 0; i < half; ++i) {
    const double plain = frequency({}, i), stretched = frequency(scaling, i), wavelength = 2 * M_PI / plain;
    if (wavelength < 8192.0 / 4) {
      ++kept;
      EXPECT_EQ(stretched, plain);
    } else if (wavelength > 8192.0) {
      ++divided;
      EXPECT_NEAR(stretched, plain / 8, 1e-6 * plain);
    } else {
      ++blended;
      EXPECT_LT(stretched, plain);
      EXPECT_GT(stretched, plain / 8);
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(divided, 20);
  EXPECT_GT(blended, 2);
}

}  // namespace
}  // namespace holdfast::testing
