#include "src/cuda/kernels/quantize.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "src/base/as_size.hpp"
#include "src/base/fp8.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using kernels::DType;
using test::DeviceArray;
using test::rows_of;
using Words = std::vector<std::uint32_t>;

template <class T>
std::vector<int> bytes(const std::vector<T>& x) {
  std::vector<int> out;
  for (const T e : x) out.push_back(e.bits);
  return out;
}

template <class In, class Out>
struct Kind {
  using From = In;
  using To = Out;
};

template <class K>
class Quantize : public ::testing::Test {
 protected:
  using In = typename K::From;
  using Out = typename K::To;
  static constexpr int poison = 0xff;

  struct Shape {
    std::int64_t rows, cols, stride, out_stride, transposed_stride, first = 0;
  };
  /// Copies, transposed copies and the largest of x, of whatever is wanted, against what the host makes of
  /// it.
  static void expect_host_bits(const Shape& s, const std::vector<In>& x, float scale, bool copy,
                               bool transposed, bool largest) {
    const DeviceArray<In> device(x);
    const DeviceArray<Out> out(s.rows * s.out_stride + s.first),
        across(as_size(s.cols * s.transposed_stride + s.first));
    const DeviceArray<float> scales(std::vector<float>{scale});
    const DeviceArray<std::uint32_t> amax(Words{17});
    kernels::Quantize q;
    if (copy) q.out = rows_of(out.data() + s.first, s.rows, s.cols, s.out_stride);
    if (transposed) q.transposed = rows_of(across.data() + s.first, s.cols, s.rows, s.transposed_stride);
    q.scale = scales.data();
    q.amax = largest ? amax.data() : nullptr;
    quantize(test::gpu(), test::stream(), rows_of(device.data() + s.first, s.rows, s.cols, s.stride), q);
    test::finish();

    std::vector<int> want(out.size(), poison), want_across(across.size(), poison);
    std::uint32_t want_amax = 17;
    for (std::int64_t r = 0; r < s.rows; ++r)
      for (std::int64_t c = 0; c < s.cols; ++c) {
        const float value = to_float(x[s.first + r * s.stride + c]);
        const int byte = to_fp8<Out>(value * scale).bits;
        if (copy) want[s.first + r * s.out_stride + c] = byte;
        if (transposed) want_across[s.first + c * s.transposed_stride + r] = byte;
        if (largest) want_amax = std::max(want_amax, std::bit_cast<std::uint32_t>(value) & 0x7fffffff);
      }
    EXPECT_EQ(bytes(out.download()), want);
    EXPECT_EQ(bytes(across.download()), want_across);
    EXPECT_EQ(amax.download()[0], want_amax);
  }
};
using Kinds = ::testing::Types<Kind<float, E4m3>, Kind<float, E5m2>, Kind<Bf16, E4m3>, Kind<Bf16, E5m2>>;
TYPED_TEST_SUITE(Quantize, Kinds);

TYPED_TEST(Quantize, CopiesAndTransposesInOnePass) {
  for (const std::int64_t rows : {1, 16, 63, 64, 65, 130})
    for (const std::int64_t cols : {1, 8, 64, 100, 136}) {
      const auto x =
          test::random_elements<typename TypeParam::From>(rows * cols, static_cast<unsigned>(rows));
      this->expect_host_bits({rows, cols, cols, cols, rows}, x, 64, true, true, true);
    }
}

TYPED_TEST(Quantize, OnlyWhatIsWanted) {
  const auto x = test::random_elements<typename TypeParam::From>(70 * 80, 5, 10);
  for (const bool copy : {false, true})
    for (const bool transposed : {false, true})
      for (const bool largest : {false, true})
        this->expect_host_bits({70, 80, 80, 80, 70}, x, 0.25f, copy, transposed, largest);
}

TYPED_TEST(Quantize, PartsOfMatricesAtAnyAddress) {
  const auto x = test::random_elements<typename TypeParam::From>(70 * 100 + 3, 6);
  this->expect_host_bits({70, 72, 96, 80, 96}, x, 16, true, true, true);
  this->expect_host_bits({70, 71, 99, 83, 77}, x, 16, true, true, true);
  this->expect_host_bits({70, 72, 96, 80, 96, 3}, x, 16, true, true, true);
}

TYPED_TEST(Quantize, NumbersThatAreNotOrdinary) {
  using T = typename TypeParam::From;
  std::vector<T> x;
  for (std::uint32_t upper = 0; upper < 65536; upper += 5)
    for (const std::uint32_t lower : {0u, 0x8000u, 0xffffu})
      x.push_back(test::element<T>(std::bit_cast<float>(upper << 16 | lower)));
  const std::int64_t cols = 104, rows = static_cast<std::int64_t>(x.size()) / cols;
  for (const float scale : {1.0f, 0x1p-20f, 0x1p30f})
    this->expect_host_bits({rows, cols, cols, cols, rows}, x, scale, true, true, true);
}

TYPED_TEST(Quantize, TheLargestAlone) {
  using T = typename TypeParam::From;
  for (const std::int64_t rows : {1, 3, 70})
    for (const std::int64_t cols : {1, 31, 256, 5000})
      for (const std::int64_t stride : {cols, cols + 5, cols + 8}) {
        auto x = test::random_elements<T>(rows * stride, 8);
        const auto last = as_size((rows - 1) * stride + cols - 1);
        x[last] = test::element<T>(-33.0f);
        const DeviceArray<T> device(x);
        const DeviceArray<std::uint32_t> largest(Words{0, 0x7f000000, 0});
        const auto matrix = rows_of(device.data(), rows, cols, stride);
        amax(test::gpu(), test::stream(), matrix, largest.data());
        amax(test::gpu(), test::stream(), matrix, largest.data() + 1);
        test::finish();
        EXPECT_EQ(largest.download(), (Words{std::bit_cast<std::uint32_t>(33.0f), 0x7f000000, 0}));
      }
  // A NaN is larger than infinity, which is larger than all others.
  const DeviceArray<T> odd(
      std::vector<T>{test::element<T>(1), test::element<T>(-INFINITY), test::element<T>(-NAN)});
  const DeviceArray<std::uint32_t> largest(Words{0, 0});
  amax(test::gpu(), test::stream(), rows_of(odd.data(), 1, 2, 2), largest.data());
  amax(test::gpu(), test::stream(), rows_of(odd.data(), 1, 3, 3), largest.data() + 1);
  test::finish();
  EXPECT_EQ(largest.download()[0], 0x7f800000u);
  EXPECT_GT(largest.download()[1], 0x7f800000u);
}

TEST(Scales, AreTheHosts) {
  Words amax;
  for (std::uint32_t upper = 0; upper < 0x8000; upper += 3)
    for (const std::uint32_t lower : {0u, 1u, 0xffffu}) amax.push_back(upper << 16 | lower);
  for (const DType type : {DType::e4m3, DType::e5m2}) {
    const DeviceArray<std::uint32_t> device(amax);
    const DeviceArray<float> scale(amax.size()), inverse(amax.size());
    scales(test::gpu(), test::stream(), scale.data(), inverse.data(), device.data(), type,
           static_cast<int>(amax.size()));
    test::finish();
    const auto is = scale.download(), inverse_is = inverse.download();
    for (std::size_t i = 0; i < amax.size(); ++i) {
      ASSERT_EQ(is[i], fp8_scale(amax[i], type));
      ASSERT_EQ(is[i] * inverse_is[i], 1.0f);
      const float largest = std::bit_cast<float>(amax[i]);
      if (amax[i] == 0 || !std::isfinite(largest)) continue;
      ASSERT_LE(static_cast<double>(largest) * is[i], fp8_max(type));
      ASSERT_TRUE(2.0 * largest * is[i] > fp8_max(type) || is[i] == 0x1p126f);
    }
  }
}

}  // namespace
}  // namespace holdfast::cuda
