// The vectorised sum of squares is ExactSum's, term by term.
#include "tests/kernels/compare.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

ExactSum term_by_term(const Floats& x) {
  ExactSum sum;
  for (const float v : x) sum.add_square(v);
  return sum;
}

class SumSquares : public ::testing::Test {
 protected:
  void expect_exact(const Floats& x) {
    ExactSum got;
    k->sum_squares(stream, x.data(), static_cast<std::int64_t>(x.size()), &got);
    EXPECT_EQ(got, term_by_term(x));
  }
  std::unique_ptr<Kernels> k = make_cpu_kernels(2);
  tensor::InlineStream stream;
};

TEST_F(SumSquares, OfEveryRangeOfExponents) {
  std::mt19937 generator(1);
  for (int low = 0; low < 256; low += 5)
    for (const int width : {1, 7, 40, 256}) {
      Floats x(5000);
      for (float& v : x) {
        const auto bits = static_cast<std::uint32_t>(generator());
        const std::uint32_t exponent =
            static_cast<std::uint32_t>(low) +
            static_cast<std::uint32_t>(generator()) % static_cast<std::uint32_t>(width);
        v = std::bit_cast<float>((bits & 0x807fffff) | std::min(254u, exponent) << 23);
      }
      expect_exact(x);
    }
}

TEST_F(SumSquares, OfGradients) {
  for (const double scale : {1e-12, 1e-6, 1e-3, 1.0, 300.0, 1e5})
    expect_exact(floats(random_array(1, 20'011, 3, scale)));
}

TEST_F(SumSquares, AtTheEdges) {
  // Around what is cut off, where a third unit is needed, where terms become too large, and whole blocks of
  // the largest numbers of each kind.
  for (const float edge : {0.0f, 0x1p-149f, 0x1p-126f, 0x1p-41f, 0x1p-40f, 0x1p-39f, 0x1p-17f, 0x1p-16f, 1.0f,
                           0x1p10f, 0x1p30f, 0x1p31f, 0x1p127f, INFINITY, NAN})
    for (const float other : {0.0f, 1e-7f, 0.3f, 2000.0f}) {
      for (const float v : {std::nextafter(edge, 0.0f), edge, std::nextafter(edge, INFINITY)}) {
        Floats x(5000, other);
        x[4321] = v;
        x[17] = -v;
        expect_exact(x);
      }
      expect_exact(Floats(5000, std::nextafter(edge, 0.0f)));
    }
}

TEST_F(SumSquares, DoesNotDependOnCutsAndThreads) {
  const Floats x = floats(random_array(1, 100003, 7, 0.01));
  ExactSum whole, parts, other;
  k->sum_squares(stream, x.data(), 100003, &whole);
  for (const auto& [from, to] : {std::pair{63, 100003}, {0, 1}, {1, 63}})
    k->sum_squares(stream, x.data() + from, to - from, &parts);
  make_cpu_kernels(1)->sum_squares(stream, x.data(), 100003, &other);
  EXPECT_EQ(whole, parts);
  EXPECT_EQ(whole, other);
  long double want = 0;
  for (const float v : x) want += static_cast<long double>(v) * v;
  EXPECT_NEAR(whole.value(), static_cast<double>(want), 1e-12 * static_cast<double>(want));
}

TEST_F(SumSquares, CountsWhatIsNotFinite) {
  Floats x(10'000, 1e-3f);
  x[7777] = INFINITY;
  ExactSum sum;
  k->sum_squares(stream, x.data(), 10'000, &sum);
  EXPECT_TRUE(sum.has_overflow());
  EXPECT_FALSE(sum.has_nan());
  x[3] = NAN;
  k->sum_squares(stream, x.data(), 10'000, &sum);
  EXPECT_TRUE(sum.has_nan());
}

}  // namespace
}  // namespace holdfast::testing
