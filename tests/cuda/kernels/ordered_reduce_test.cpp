#include "src/cuda/kernels/ordered_reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using test::DeviceArray;
using Floats = std::vector<float>;

template <class T>
class OrderedReduce : public ::testing::Test {
 protected:
  /// `terms` arrays, each beginning `first` elements behind an aligned address.
  static void expect_cpu_bits(int terms, std::int64_t count, bool copies, std::int64_t first = 0) {
    std::vector<std::vector<T>> values;
    std::vector<std::unique_ptr<DeviceArray<T>>> arrays;
    std::vector<const void*> here, there;
    for (int term = 0; term < terms; ++term) {
      values.push_back(
          test::random_elements<T>(first + count, static_cast<unsigned>(term), term % 3 == 0 ? 1 : 1e-3));
      values.back()[first] = test::element<T>(-0.0f);
      arrays.push_back(std::make_unique<DeviceArray<T>>(values.back()));
      there.push_back(arrays.back()->data() + first);
    }
    for (const auto& term : values) here.push_back(term.data() + first);
    Floats want = copies ? Floats(count, NAN) : test::random_elements<float>(count, 99);
    const DeviceArray<float> sum(want);
    tensor::InlineStream inline_stream;
    kernels::make_cpu_kernels(1)->reduce(inline_stream, want.data(), here, dtype_of<T>(), count, copies);
    ordered_reduce(test::gpu(), test::stream(), sum.data(), there, dtype_of<T>(), count, copies);
    test::finish();
    EXPECT_EQ(test::difference(sum.download(), want), "") << terms << " terms of " << count;
  }
};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(OrderedReduce, Types);

TYPED_TEST(OrderedReduce, IsTheCpusBitForBit) {
  for (const int terms : {1, 2, 3, 5, 8})
    for (const bool copies : {true, false}) this->expect_cpu_bits(terms, 4099, copies);
  for (const std::int64_t count : {1, 3, 7, 8, 9, 2047, 2048, 2049}) this->expect_cpu_bits(4, count, true);
}

TYPED_TEST(OrderedReduce, OfMoreTermsThanOneLaunchTakes) {
  for (const int terms : {31, 32, 33, 65})
    for (const bool copies : {true, false}) this->expect_cpu_bits(terms, 203, copies);
}

TYPED_TEST(OrderedReduce, AtAnyAddress) {
  for (const std::int64_t first : {1, 2, 3, 4}) this->expect_cpu_bits(3, 2500, true, first);
}

TYPED_TEST(OrderedReduce, NoTermsChangeNothing) {
  const DeviceArray<float> sum(Floats{1, 2, 3});
  ordered_reduce(test::gpu(), test::stream(), sum.data(), {}, dtype_of<TypeParam>(), 3, false);
  test::finish();
  EXPECT_EQ(sum.download(), (Floats{1, 2, 3}));
}

TYPED_TEST(OrderedReduce, TheFirstTermIsCopiedNotAddedToZero) {
  const DeviceArray<TypeParam> term(std::vector<TypeParam>(9, test::element<TypeParam>(-0.0f)));
  const DeviceArray<float> sum(9);
  const void* const terms[] = {term.data()};
  ordered_reduce(test::gpu(), test::stream(), sum.data(), terms, dtype_of<TypeParam>(), 9, true);
  test::finish();
  for (const float x : sum.download()) EXPECT_TRUE(x == 0 && std::signbit(x));
}

}  // namespace
}  // namespace holdfast::cuda
