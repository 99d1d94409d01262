#include "src/cuda/kernels/squares.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "src/base/as_size.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using tensor::ExactSum;
using test::DeviceArray;
using Floats = std::vector<float>;

class Squares : public ::testing::Test {
 protected:
  /// What is there plus the squares of x from element `first` on.
  ExactSum added(const ExactSum& before, const Floats& x, std::size_t first,
                 int blocks = sum_squares_blocks) {
    const DeviceArray<float> device(x);
    DeviceArray<ExactSum> sum(std::vector<ExactSum>{before});
    sum_squares(test::gpu(), test::stream(), device.data() + first,
                static_cast<std::int64_t>(x.size() - first), sum.data(), scratch.data(), blocks);
    test::finish();
    return sum.download()[0];
  }
  void expect_exact(const Floats& x, std::size_t first = 0, int blocks = sum_squares_blocks) {
    ExactSum before;
    before.add(3.25);
    ExactSum want = before;
    for (std::size_t i = first; i < x.size(); ++i) want.add_square(x[i]);
    EXPECT_EQ(added(before, x, first, blocks), want) << x.size() << " elements from " << first;
  }

  DeviceArray<std::byte> scratch{as_size(sum_squares_scratch())};
};

TEST_F(Squares, OfGradientsOfEverySize) {
  for (const double scale : {1e-12, 1e-6, 1e-3, 1.0, 300.0, 1e5, 1e9, 1e12})
    expect_exact(test::random_elements<float>(9'011, 3, scale));
}

TEST_F(Squares, OfAnyCountAtAnyAddress) {
  const Floats x = test::random_elements<float>(12'295, 5, 0.01);
  for (const std::size_t first : {0, 1, 2, 3})
    for (const std::size_t count : {1, 2, 3, 4, 5, 15, 16, 17, 1023, 4095, 4096, 4097, 12'290})
      expect_exact(Floats(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(first + count)), first);
  EXPECT_EQ(added(ExactSum(), Floats(), 0), ExactSum());
}

TEST_F(Squares, AtTheEdges) {
  // Around what is cut off, where a third unit is needed, where terms become too large; and infinities and
  // NaNs.
  for (const float edge : {0.0f, 0x1p-149f, 0x1p-126f, 0x1p-41f, 0x1p-40f, 0x1p-39f, 0x1p-17f, 0x1p-16f, 1.0f,
                           0x1p10f, 0x1p30f, 0x1p31f, 0x1p32f, 0x1p127f, INFINITY, std::nanf("")})
    for (const float other : {0.0f, 0.3f, 2000.0f})
      for (const float v : {std::nextafter(edge, 0.0f), edge, std::nextafter(edge, INFINITY)}) {
        Floats x(5000, other);
        x[4321] = v;
        x[17] = -v;
        expect_exact(x);
        expect_exact(Floats(70, v));
      }
}

TEST_F(Squares, DoesNotDependOnBlocksAndOrder) {
  const Floats x = test::random_elements<float>(40'003, 7, 0.01);
  ExactSum want;
  for (const float v : x) want.add_square(v);
  std::uint64_t seed = 10;
  for (const int blocks : {1, 2, 7, sum_squares_blocks}) {
    test::reseed(++seed);
    EXPECT_EQ(added(ExactSum(), x, 0, blocks), want);
  }
}

TEST_F(Squares, NoThreadsIntegerOverflows) {
  // A single block, so that its threads meet more elements than their integers hold (8192 of the largest);
  // every term as large as its kind gets, and with all low bits set.
  for (const float v : {std::nextafter(0x1p10f, 0.0f), std::nextafter(0x1p31f, 0.0f), 0x1.fffffep-16f})
    expect_exact(Floats(2'300'001, v), 0, 1);
}

TEST_F(Squares, NeedsScratchForManyBlocks) {
  const DeviceArray<float> x(Floats(5000, 1.0f));
  const DeviceArray<ExactSum> sum(1);
  EXPECT_THROW(sum_squares(test::gpu(), test::stream(), x.data(), 5000, sum.data(), nullptr),
               std::logic_error);
  EXPECT_THROW(sum_squares(test::gpu(), test::stream(), x.data(), 5000, sum.data(), scratch.data(), 5000),
               std::logic_error);
}

}  // namespace
}  // namespace holdfast::cuda
