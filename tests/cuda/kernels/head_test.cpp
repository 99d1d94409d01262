#include "src/cuda/kernels/head.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using kernels::DType;
using tensor::ExactSum;
using test::DeviceArray;
using test::rows_of;
using Floats = std::vector<float>;
using Labels = std::vector<std::int32_t>;

template <class T>
class Head : public ::testing::Test {
 protected:
  struct Result {
    std::vector<double> losses;
    Floats logits;             ///< what lies there behind it
    std::vector<T> gradients;  ///< rows x cols
  };
  static Result run(const Floats& logits, const Labels& labels, std::int64_t cols, std::int64_t stride,
                    bool with_gradient, std::int64_t first = 0) {
    const auto rows = static_cast<std::int64_t>(labels.size());
    const DeviceArray<float> device(logits);
    const DeviceArray<std::int32_t> tokens(labels);
    const DeviceArray<double> losses(labels.size());
    const tensor::Mat matrix = rows_of(device.data() + first, rows, cols, stride);
    cross_entropy(test::gpu(), test::stream(), matrix, tokens.data(), with_gradient, dtype_of<T>(),
                  losses.data());
    test::finish();
    Result r{losses.download(), device.download(), {}};
    const tensor::ConstMat g =
        logit_gradients(rows_of(r.logits.data() + first, rows, cols, stride), dtype_of<T>());
    for (std::int64_t t = 0; t < rows; ++t)
      for (std::int64_t c = 0; c < cols; ++c) {
        T x;
        std::memcpy(&x, g.data + (t * g.stride + c) * bytes_of(g.type), sizeof x);
        r.gradients.push_back(x);
      }
    return r;
  }
  static void expect_close(const Floats& logits, const Labels& labels, std::int64_t cols, std::int64_t stride,
                           std::int64_t first = 0) {
    const Result is = run(logits, labels, cols, stride, true, first);
    const Result evaluated = run(logits, labels, cols, stride, false, first);
    EXPECT_EQ(is.losses, evaluated.losses);
    EXPECT_EQ(test::difference(evaluated.logits, logits), "");
    for (std::size_t t = 0; t < labels.size(); ++t) {
      const float* const row = logits.data() + first + static_cast<std::int64_t>(t) * stride;
      const T* const gradient = is.gradients.data() + static_cast<std::int64_t>(t) * cols;
      if (labels[t] < 0) {
        EXPECT_EQ(is.losses[t], 0);
        for (std::int64_t c = 0; c < cols; ++c) ASSERT_EQ(to_float(gradient[c]), 0);
        continue;
      }
      const double top = *std::max_element(row, row + cols);
      double sum = 0;
      for (std::int64_t c = 0; c < cols; ++c) sum += std::exp(row[c] - top);
      const double loss = std::log(sum) + top - row[labels[t]];
      EXPECT_NEAR(is.losses[t], loss, 2e-6 * std::fmax(1, loss)) << cols << " columns";
      for (std::int64_t c = 0; c < cols; ++c) {
        const double p = std::exp(row[c] - top) / sum, want = c == labels[t] ? p - 1 : p;
        const double rounding = std::is_same_v<T, float> ? 0 : 0x1p-8 * std::fabs(want);
        // The exponent is rounded twice, in proportion to its size.
        const double of_exponent = p * (4 + std::fabs(row[c] - top)) * 0x1p-22;
        ASSERT_NEAR(to_float(gradient[c]), want, rounding + of_exponent + 0x1p-23)
            << "row " << t << ", " << c;
      }
    }
  }
  static Labels labels_for(std::int64_t rows, std::int64_t cols, int mask_every) {
    Labels labels;
    for (std::int64_t t = 0; t < rows; ++t)
      labels.push_back(mask_every > 0 && t % mask_every == 1 ? -100
                                                             : static_cast<std::int32_t>(t * 7919 % cols));
    return labels;
  }
};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Head, Types);

TYPED_TEST(Head, CrossEntropyAndItsGradient) {
  for (const std::int64_t cols : {1, 2, 3, 67, 128, 129, 1000, 4100, 8192})
    this->expect_close(test::random_elements<float>(5 * cols, static_cast<unsigned>(cols), 3),
                       this->labels_for(5, cols, 3), cols, cols);
}

TYPED_TEST(Head, RowsThatRegistersDoNotHold) {
  std::uint64_t seed = 40;
  for (const std::int64_t cols : {32'768, 32'769, 70'004, 131'076}) {
    test::reseed(++seed);  // rows are overwritten while they are read: in any order of threads
    auto x = test::random_elements<float>(2 * cols, static_cast<unsigned>(cols), 2);
    x[cols - 1] = 9;  // what is read first
    this->expect_close(x, {static_cast<std::int32_t>(cols - 2), 17}, cols, cols);
  }
}

TYPED_TEST(Head, PartsOfMatricesAtAnyAddress) {
  for (const std::int64_t stride : {260, 257, 263})
    for (const std::int64_t first : {0, 1})
      this->expect_close(test::random_elements<float>(first + 4 * stride, 3, 3), this->labels_for(4, 257, 0),
                         257, stride, first);
}

TYPED_TEST(Head, LargeLogits) {
  for (const double scale : {50.0, 1e4, 1e30})
    this->expect_close(test::random_elements<float>(3 * 300, 3, scale), this->labels_for(3, 300, 0), 300,
                       300);
  // A certain label costs nothing, never less.
  Floats certain(300, -200.0f);
  certain[5] = 90;
  EXPECT_EQ(this->run(certain, {5}, 300, 300, true).losses[0], 0);
}

TYPED_TEST(Head, InfinitiesAndNaNs) {
  Floats x = test::random_elements<float>(4 * 200, 3);
  x[7] = -INFINITY, x[200 + 9] = NAN, x[400 + 9] = INFINITY;
  for (std::size_t i = 600; i < 800; ++i) x[i] = -INFINITY;
  const auto is = this->run(x, {3, 3, 3, 3}, 200, 200, true);
  EXPECT_TRUE(std::isfinite(is.losses[0]));
  EXPECT_EQ(to_float(is.gradients[7]), 0);
  for (std::size_t t = 1; t < 4; ++t) EXPECT_TRUE(std::isnan(is.losses[t])) << t;
  EXPECT_EQ(this->run(x, {7}, 200, 200, true).losses[0], INFINITY);
}

TYPED_TEST(Head, BitsDoNotDependOnTheOrderOfThreads) {
  const Floats x = test::random_elements<float>(3 * 3001, 3, 2);
  test::reseed(51);
  const auto one = this->run(x, {1, 2, 3}, 3001, 3001, true);
  test::reseed(52);
  const auto two = this->run(x, {1, 2, 3}, 3001, 3001, true);
  EXPECT_EQ(one.losses, two.losses);
  EXPECT_EQ(test::difference(one.gradients, two.gradients), "");
}

TEST(AddLosses, IsExact) {
  const std::int64_t tokens = 1024;
  std::vector<double> losses;
  Labels labels;
  ExactSum want;
  want.add(3.5);
  std::int64_t valid = 40;
  const Floats random = test::random_elements<float>(tokens, 1, 4);
  for (std::int64_t t = 0; t < tokens; ++t) {
    losses.push_back(std::fabs(random[t] * 1.000000001));
    labels.push_back(t % 3 == 0 ? -100 : static_cast<std::int32_t>(t));
  }
  losses[1] = 0, losses[2] = 0x1p-90, losses[4] = 0x1p-1050, losses[5] = 0x1p61,
  losses[7] = 0x1.fffffffffffffp-29;
  losses[8] = INFINITY;  // the last is masked
  losses[10] = NAN;
  losses[11] = 0x1p62;
  losses[3] = NAN;
  for (std::size_t t = 0; t < losses.size(); ++t)
    if (labels[t] >= 0) {
      want.add(losses[t]);
      ++valid;
    }
  ExactSum before;
  before.add(3.5);
  const DeviceArray<double> device(losses);
  const DeviceArray<std::int32_t> tokens_of(labels);
  const DeviceArray<ExactSum> sum(std::vector<ExactSum>{before});
  const DeviceArray<std::int64_t> count(std::vector<std::int64_t>{40});
  add_losses(test::gpu(), test::stream(), device.data(), tokens_of.data(), tokens, sum.data(), count.data());
  test::finish();
  EXPECT_EQ(sum.download()[0], want);
  EXPECT_EQ(count.download()[0], valid);
}

}  // namespace
}  // namespace holdfast::cuda
