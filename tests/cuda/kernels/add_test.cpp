#include "src/cuda/kernels/add.hpp"

#include <gtest/gtest.h>

#include "src/base/as_size.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using test::DeviceArray;
using test::rows_of;

template <class T>
class AddOnGpu : public ::testing::Test {};
using Elements = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(AddOnGpu, Elements);

/// In place and apart, whole packs and odd columns and addresses: the CPU's bits, and nothing behind a row.
TYPED_TEST(AddOnGpu, HasTheBitsOfTheCpu) {
  using T = TypeParam;
  const std::int64_t rows = 3;
  for (const std::int64_t cols : {1, 8, 30, 520, 5000})
    for (const std::int64_t gap : {0, 3, 8})
      for (const bool in_place : {false, true}) {
        const std::int64_t stride = cols + gap, count = rows * stride;
        std::vector<T> a = test::random_elements<T>(count, 1), b = test::random_elements<T>(count, 2),
                       out = test::random_elements<T>(count, 3);
        const DeviceArray<T> on_a(a), on_b(b), on_out(out);
        const DeviceArray<T>& result = in_place ? on_a : on_out;
        add(test::gpu(), test::stream(), rows_of(result.data(), rows, cols, stride),
            rows_of(on_a.data(), rows, cols, stride), rows_of(on_b.data(), rows, cols, stride));
        tensor::InlineStream stream;
        std::vector<T>& want = in_place ? a : out;
        kernels::make_cpu_kernels(1)->add(stream, rows_of(want.data(), rows, cols, stride),
                                          rows_of(a.data(), rows, cols, stride),
                                          rows_of(b.data(), rows, cols, stride));
        EXPECT_EQ(test::difference(result.download(), want), "") << cols << ' ' << gap << ' ' << in_place;
      }
}

}  // namespace
}  // namespace holdfast::cuda
