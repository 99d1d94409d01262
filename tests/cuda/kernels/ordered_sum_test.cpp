#include "src/cuda/kernels/ordered_sum.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "src/base/as_size.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using test::DeviceArray;
using Floats = std::vector<float>;

/// Additions on a stack of `before` sums.
std::vector<Addition> by_chance(int terms, int before, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<Addition> out;
  for (int sums = before; terms > 0; --terms) {
    const bool begins = sums == 0 || (generator() % 2 == 0 && sums < 20);
    sums += begins ? 1 : 0;
    const int merges = static_cast<int>(generator() % 3) * static_cast<int>(generator() % 2);
    out.push_back({begins, std::min(merges, sums - 1)});
    sums -= out.back().merges;
  }
  return out;
}
/// The additions of lanes [first, first + terms), merged as a counter counts.
std::vector<Addition> as_a_counter(unsigned first, unsigned terms) {
  std::vector<Addition> out;
  int sums = 0;
  for (unsigned lane = first; lane < first + terms; ++lane) {
    int merges = 0;
    for (unsigned size = 2; (lane + 1) % size == 0 && lane + 1 >= first + size; size *= 2) ++merges;
    out.push_back({true, merges});
    sums += 1 - merges;
  }
  return out;
}

template <class T>
class OrderedSum : public ::testing::Test {
 public:
  /// Arrays each begin `shift` elements behind an aligned address. `result`: the lowest sum goes elsewhere,
  /// where a term is.
  static void expect_cpu_bits(const std::vector<Addition>& additions, int before, std::int64_t count,
                              bool result = false, std::int64_t shift = 0) {
    std::vector<std::vector<T>> values;
    std::vector<std::unique_ptr<DeviceArray<T>>> arrays;
    std::vector<const void*> here, there;
    for (std::size_t term = 0; term < additions.size(); ++term) {
      values.push_back(
          test::random_elements<T>(shift + count, static_cast<unsigned>(term), term % 3 == 0 ? 1 : 1e-3));
      values.back()[as_size(shift)] = test::element<T>(-0.0f);
      arrays.push_back(std::make_unique<DeviceArray<T>>(values.back()));
      there.push_back(arrays.back()->data() + shift);
    }
    for (const auto& term : values) here.push_back(term.data() + shift);
    const int sums = sums_in_memory(additions, before), behind = sums_behind(additions, before);
    std::vector<Floats> want;
    std::vector<std::unique_ptr<DeviceArray<float>>> found;
    std::vector<float*> want_at, found_at;
    for (int i = 0; i < sums; ++i) {
      want.push_back(i < before ? test::random_elements<float>(shift + count, 99 + static_cast<unsigned>(i))
                                : Floats(as_size(shift + count), NAN));
      found.push_back(std::make_unique<DeviceArray<float>>(want.back()));
    }
    for (int i = 0; i < sums; ++i) {
      want_at.push_back(want[as_size(i)].data() + shift);
      found_at.push_back(found[as_size(i)]->data() + shift);
    }
    const auto call = [&](std::span<const void* const> terms, std::span<float* const> at, const void* to) {
      return kernels::OrderedSum{
          terms, dtype_of<T>(), additions, at, before, count, static_cast<float*>(const_cast<void*>(to))};
    };
    tensor::InlineStream inline_stream;
    kernels::make_cpu_kernels(1)->add_up(inline_stream, call(here, want_at, result ? here.back() : nullptr));
    ordered_sum(test::gpu(), test::stream(), call(there, found_at, result ? there.back() : nullptr));
    test::finish();
    for (int i = result ? 1 : 0; i < behind; ++i)
      EXPECT_EQ(test::difference(found[as_size(i)]->download(), want[as_size(i)]), "")
          << "sum " << i << " of " << additions.size() << " terms of " << count;
    if (result) {
      EXPECT_EQ(test::difference(arrays.back()->download(), values.back()), "");
    }
  }
};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(OrderedSum, Types);

TYPED_TEST(OrderedSum, IsTheCpusBitForBit) {
  for (const int terms : {1, 2, 3, 5, 8, 31})
    for (const int before : {0, 1, 3})
      this->expect_cpu_bits(by_chance(terms, before, static_cast<unsigned>(7 * terms + before)), before,
                            2051);
  for (const std::int64_t count : {1, 3, 7, 8, 9, 1023, 1024, 1025})
    this->expect_cpu_bits(by_chance(4, 2, 5), 2, count);
}

TYPED_TEST(OrderedSum, OfMoreTermsAndSumsThanOnePassTakes) {
  this->expect_cpu_bits(as_a_counter(0, 300), 0, 19);
  this->expect_cpu_bits(as_a_counter(1, 260), 0, 19);
  this->expect_cpu_bits(as_a_counter(129, 254), 0, 19);  // 14 sums that are not merged
  this->expect_cpu_bits(by_chance(700, 0, 3), 0, 19);
}

TYPED_TEST(OrderedSum, AtAnyAddress) {
  for (const std::int64_t shift : {1, 2, 3, 4})
    this->expect_cpu_bits(by_chance(6, 1, 4), 1, 1300, false, shift);
}

TYPED_TEST(OrderedSum, NoTermsChangeNothing) {
  const DeviceArray<float> sum(Floats{1, 2, 3});
  float* const at = sum.data();
  ordered_sum(test::gpu(), test::stream(), {{}, dtype_of<TypeParam>(), {}, {&at, 1}, 1, 3});
  test::finish();
  EXPECT_EQ(sum.download(), (Floats{1, 2, 3}));
}

TYPED_TEST(OrderedSum, ATermThatBeginsASumIsCopiedNotAddedToZero) {
  const DeviceArray<TypeParam> term(std::vector<TypeParam>(9, test::element<TypeParam>(-0.0f)));
  const DeviceArray<float> sum(9);
  const void* const terms[] = {term.data()};
  const Addition copies{true, 0};
  float* const at = sum.data();
  ordered_sum(test::gpu(), test::stream(), {terms, dtype_of<TypeParam>(), {&copies, 1}, {&at, 1}, 0, 9});
  test::finish();
  for (const float x : sum.download()) EXPECT_TRUE(x == 0 && std::signbit(x));
}

/// As replicas add up: the sum goes where one of the terms was, and nothing else is written.
TEST(OrderedSumOfReplicas, TakesThePlaceOfATerm) {
  std::vector<Addition> additions = as_a_counter(0, 11);
  additions.back().merges += sums_behind(additions, 0) - 1;
  OrderedSum<float>::expect_cpu_bits(additions, 0, 1000, true);
}

}  // namespace
}  // namespace holdfast::cuda
