#include "src/cuda/kernels/swiglu.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "src/base/as_size.hpp"
#include "src/base/fp8.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using test::DeviceArray;
using test::rows_of;

template <class T>
class SwigluOnGpu : public ::testing::Test {
 protected:
  struct Shape {
    std::int64_t rows, f, gap = 0, first = 0;
    std::int64_t stride(std::int64_t cols) const { return cols + gap; }
    std::size_t size(std::int64_t cols) const { return as_size(first + rows * stride(cols)); }
    tensor::Mat mat(T* data, std::int64_t cols) const {
      return rows_of(data + first, rows, cols, stride(cols));
    }
    std::size_t at(std::int64_t t, std::int64_t i, std::int64_t cols) const {
      return as_size(first + t * stride(cols) + i);
    }
  };
  static std::vector<T> forward(const Shape& s, const std::vector<T>& gate_up,
                                const kernels::Quantize* q = nullptr) {
    const DeviceArray<T> in(gate_up), out(s.size(s.f));
    swiglu(test::gpu(), test::stream(), s.mat(out.data(), s.f), s.mat(in.data(), 2 * s.f), q);
    return out.download();
  }
  static std::vector<T> backward(const Shape& s, const std::vector<T>& gate_up, const std::vector<T>& d_out) {
    const DeviceArray<T> in(gate_up), dy(d_out), out(s.size(2 * s.f));
    swiglu_backward(test::gpu(), test::stream(), s.mat(out.data(), 2 * s.f), s.mat(dy.data(), s.f),
                    s.mat(in.data(), 2 * s.f));
    return out.download();
  }
  /// Half a unit in the last place of the result, and some roundings of fp32 before it.
  static double tolerance(double value) {
    return std::abs(value) * ((sizeof(T) == 2 ? 0x1p-8 : 0) + 16 * 0x1p-24) + 1e-37;
  }

  template <class Copy>
  static void expect_copies(std::int64_t f) {
    const Shape s{5, f};
    const DeviceArray<Copy> copy(s.size(f)), transposed(s.size(f));
    const DeviceArray<float> scale(std::vector<float>{16});
    const DeviceArray<std::uint32_t> amax(std::vector<std::uint32_t>{0x3f800000});
    const kernels::Quantize q{rows_of(copy.data(), 5, f, f), rows_of(transposed.data(), f, 5, 5),
                              scale.data(), amax.data()};
    const auto x = test::random_elements<T>(5 * 2 * f, 9, 2);
    const auto y = forward(s, x, &q);
    EXPECT_EQ(test::difference(y, forward(s, x)), "");
    const auto got = copy.download(), got_transposed = transposed.download();
    std::uint32_t largest = 0x3f800000;
    for (std::int64_t t = 0; t < 5; ++t)
      for (std::int64_t i = 0; i < f; ++i) {
        const float value = to_float(y[s.at(t, i, f)]);
        const Copy want = to_fp8<Copy>(value * 16);
        ASSERT_EQ(got[s.at(t, i, f)], want);
        ASSERT_EQ(got_transposed[i * 5 + t], want);
        largest = std::max(largest, std::bit_cast<std::uint32_t>(std::abs(value)));
      }
    EXPECT_EQ(amax.download()[0], largest);
  }
};
using Elements = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(SwigluOnGpu, Elements);

TYPED_TEST(SwigluOnGpu, IsRightInFp64) {
  for (const std::int64_t f : {1, 63, 64, 100, 256, 1000, 2080})
    for (const std::int64_t gap : {0, 3, 8}) {
      const typename TestFixture::Shape s{3, f, gap, gap};
      const auto x = test::random_elements<TypeParam>(static_cast<std::int64_t>(s.size(2 * f)), 3, 4);
      const auto dy = test::random_elements<TypeParam>(static_cast<std::int64_t>(s.size(f)), 4);
      const auto y = this->forward(s, x);
      const auto dx = this->backward(s, x, dy);
      for (std::int64_t t = 0; t < s.rows; ++t)
        for (std::int64_t i = 0; i < f; ++i) {
          const double gate = to_float(x[s.at(t, i, 2 * f)]), up = to_float(x[s.at(t, f + i, 2 * f)]);
          const double d = to_float(dy[s.at(t, i, f)]), sigmoid = 1 / (1 + std::exp(-gate)),
                       silu = gate * sigmoid;
          const double slope = sigmoid + silu * (1 - sigmoid),
                       sizes = sigmoid + std::abs(silu) * (1 - sigmoid);
          ASSERT_NEAR(to_float(y[s.at(t, i, f)]), silu * up, this->tolerance(silu * up))
              << f << ' ' << t << ' ' << i;
          ASSERT_NEAR(to_float(dx[s.at(t, i, 2 * f)]), d * up * slope,
                      this->tolerance(d * up * slope) + 16 * 0x1p-24 * std::abs(d * up) * sizes);
          ASSERT_NEAR(to_float(dx[s.at(t, f + i, 2 * f)]), d * silu, this->tolerance(d * silu));
        }
    }
}

TYPED_TEST(SwigluOnGpu, WritesNoGapAndHasTheSameBitsInEveryLayout) {
  const std::int64_t f = 272;
  const auto x = test::random_elements<TypeParam>(3 * 2 * f, 3, 4);
  const auto dy = test::random_elements<TypeParam>(3 * f, 4);
  const typename TestFixture::Shape dense{3, f};
  const auto y = this->forward(dense, x), dx = this->backward(dense, x, dy);
  for (const std::int64_t gap : {1, 8}) {
    test::reseed(static_cast<unsigned>(gap));
    const typename TestFixture::Shape s{3, f, gap, gap};
    const auto poison = DeviceArray<TypeParam>(s.size(2 * f)).download();
    auto x_in = poison, dy_in = poison, want_y = poison, want_dx = poison;
    dy_in.resize(s.size(f)), want_y.resize(s.size(f));
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t i = 0; i < f; ++i)
        dy_in[s.at(t, i, f)] = dy[dense.at(t, i, f)], want_y[s.at(t, i, f)] = y[dense.at(t, i, f)];
      for (std::int64_t i = 0; i < 2 * f; ++i) {
        x_in[s.at(t, i, 2 * f)] = x[dense.at(t, i, 2 * f)];
        want_dx[s.at(t, i, 2 * f)] = dx[dense.at(t, i, 2 * f)];
      }
    }
    EXPECT_EQ(test::difference(this->forward(s, x_in), want_y), "");
    EXPECT_EQ(test::difference(this->backward(s, x_in, dy_in), want_dx), "");
  }
}

TYPED_TEST(SwigluOnGpu, LargeGatesStayFinite) {
  std::vector<TypeParam> x, dy(6, test::element<TypeParam>(1));
  for (const float gate : {-1e4f, -200.0f, -88.5f, 88.5f, 200.0f, 1e4f})
    x.push_back(test::element<TypeParam>(gate));
  x.insert(x.end(), 6, test::element<TypeParam>(2));
  const typename TestFixture::Shape s{1, 6};
  const auto y = this->forward(s, x), dx = this->backward(s, x, dy);
  for (std::size_t i = 0; i < 6; ++i) {
    const float gate = to_float(x[i]);
    EXPECT_NEAR(to_float(y[i]), gate > 0 ? 2 * gate : 0, 1e-30);
    EXPECT_NEAR(to_float(dx[i]), gate > 0 ? 2 : 0, 1e-30);
    EXPECT_NEAR(to_float(dx[6 + i]), gate > 0 ? gate : 0, 1e-30);
  }
}

TYPED_TEST(SwigluOnGpu, TheGradientMayGoWhereTheOperandsAre) {
  const std::int64_t f = 520;
  const typename TestFixture::Shape s{2, f};
  const auto x = test::random_elements<TypeParam>(2 * 2 * f, 3),
             dy = test::random_elements<TypeParam>(2 * f, 4);
  const DeviceArray<TypeParam> both(x), d_out(dy);
  swiglu_backward(test::gpu(), test::stream(), s.mat(both.data(), 2 * f), s.mat(d_out.data(), f),
                  s.mat(both.data(), 2 * f));
  EXPECT_EQ(test::difference(both.download(), this->backward(s, x, dy)), "");
}

TYPED_TEST(SwigluOnGpu, CopiesItsResultToEightBits) {
  for (const std::int64_t f : {1, 63, 64, 272}) {
    this->template expect_copies<E4m3>(f);
    this->template expect_copies<E5m2>(f);
  }
}

TYPED_TEST(SwigluOnGpu, AmaxAloneIsRecordedAndANanIsLarger) {
  const typename TestFixture::Shape s{1, 64};
  const DeviceArray<std::uint32_t> amax(std::vector<std::uint32_t>{0});
  const kernels::Quantize q{{}, {}, nullptr, amax.data()};
  auto x = test::random_elements<TypeParam>(128, 1);
  x[100] = test::element<TypeParam>(std::nanf(""));
  this->forward(s, x, &q);
  EXPECT_GT(amax.download()[0], 0x7f800000u);
}

TEST(SwigluOnGpuChecks, AnotherWidthIsAnError) {
  const DeviceArray<float> in(24), out(24);
  EXPECT_THROW(
      swiglu(test::gpu(), test::stream(), rows_of(out.data(), 2, 6, 6), rows_of(in.data(), 2, 8, 8), nullptr),
      std::logic_error);
}

}  // namespace
}  // namespace holdfast::cuda
