#include "src/cuda/kernels/column_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/base/as_size.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using test::DeviceArray;
using test::rows_of;
using Floats = std::vector<float>;

template <class T>
class ColumnSums : public ::testing::Test {
 protected:
  static Floats got(const std::vector<T>& x, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                    std::int64_t first = 0) {
    const DeviceArray<T> device(x);
    const DeviceArray<float> out(cols), scratch(as_size(column_sums_scratch(rows, cols)));
    column_sums(test::gpu(), test::stream(), out.data(), rows_of(device.data() + first, rows, cols, stride),
                scratch.data());
    test::finish();
    return out.download();
  }
  /// The order that column_sums.hpp says.
  static float in_order(const std::vector<T>& x, std::int64_t rows, std::int64_t stride,
                        std::int64_t column) {
    const std::int64_t per_block = std::max<std::int64_t>(64, (rows + 63) / 64);
    float total = 0;
    for (std::int64_t block = 0; block < rows; block += per_block) {
      float of_block = 0;
      for (std::int64_t line = 0; line < 8; ++line) {
        float sum = 0;
        for (std::int64_t t = block + line; t < std::min(rows, block + per_block); t += 8)
          sum += to_float(x[t * stride + column]);
        of_block = line == 0 ? sum : of_block + sum;
      }
      total = block == 0 ? of_block : total + of_block;
    }
    return total;
  }
  static void expect_in_order(std::int64_t rows, std::int64_t cols, std::int64_t stride,
                              std::int64_t first = 0) {
    const auto x = test::random_elements<T>(rows * stride + first, static_cast<unsigned>(rows + cols));
    const Floats is = got(x, rows, cols, stride, first);
    for (std::int64_t c = 0; c < cols; ++c) {
      double exact = 0, size = 0;
      for (std::int64_t t = 0; t < rows; ++t) {
        const double e = to_float(x[first + t * stride + c]);
        exact += e;
        size += std::fabs(e);
      }
      const float sum = is[c];
      ASSERT_EQ(sum, in_order(x, rows, stride, first + c)) << rows << " x " << cols << ", column " << c;
      ASSERT_NEAR(sum, exact, 0x1p-20 * size);
    }
  }
};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(ColumnSums, Types);

TYPED_TEST(ColumnSums, AreTakenInTheirOrder) {
  for (const std::int64_t rows : {1, 7, 8, 63, 64, 65, 130, 4097})
    for (const std::int64_t cols : {1, 8, 31, 256, 300}) this->expect_in_order(rows, cols, cols);
}

TYPED_TEST(ColumnSums, OfPartsOfAMatrix) {
  this->expect_in_order(200, 64, 96);
  this->expect_in_order(200, 63, 77);
  this->expect_in_order(200, 64, 96, 3);
}

TYPED_TEST(ColumnSums, DoNotDependOnTheOrderOfThreads) {
  const auto x = test::random_elements<TypeParam>(1000 * 70, 1);
  test::reseed(31);
  const Floats one = this->got(x, 1000, 70, 70);
  test::reseed(32);
  EXPECT_EQ(one, this->got(x, 1000, 70, 70));
}

TYPED_TEST(ColumnSums, OfNoTokensAreZero) { EXPECT_EQ(this->got({}, 0, 5, 5), Floats(5, 0.0f)); }

}  // namespace
}  // namespace holdfast::cuda
