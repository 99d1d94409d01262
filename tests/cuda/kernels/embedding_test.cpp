#include "src/cuda/kernels/embedding.hpp"

#include <gtest/gtest.h>

#include "src/base/as_size.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using kernels::Write;
using test::DeviceArray;
using test::rows_of;
using Tokens = std::vector<std::int32_t>;

/// Some often, some never, some masked.
Tokens random_tokens(std::int64_t count, std::int32_t vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<std::int32_t> any(-1, vocabulary - 1), often(0, 2);
  Tokens tokens;
  for (std::int64_t t = 0; t < count; ++t) tokens.push_back(t % 3 == 0 ? often(random) : any(random));
  return tokens;
}

template <class T>
class EmbeddingOnGpu : public ::testing::Test {
 protected:
  struct Shape {
    std::int64_t tokens, vocabulary, d, gap = 0, first = 0;
    std::int64_t stride() const { return d + gap; }
  };
  static std::vector<T> poisoned(const Shape& s) {
    return DeviceArray<T>(s.first + s.tokens * s.stride()).download();
  }

  static void expect_rows(const Shape& s, const Tokens& tokens) {
    const auto table = test::random_elements<T>(s.first + s.vocabulary * s.stride(), 5);
    const DeviceArray<T> device_table(table), out(as_size(s.first + s.tokens * s.stride()));
    const DeviceArray<std::int32_t> device_tokens(tokens);
    embed(test::gpu(), test::stream(), rows_of(out.data() + s.first, s.tokens, s.d, s.stride()),
          rows_of(device_table.data() + s.first, s.vocabulary, s.d, s.stride()), device_tokens.data());

    std::vector<T> want = poisoned(s);
    tensor::InlineStream stream;
    kernels::make_cpu_kernels(1)->embed(stream, rows_of(want.data() + s.first, s.tokens, s.d, s.stride()),
                                        rows_of(table.data() + s.first, s.vocabulary, s.d, s.stride()),
                                        tokens.data());
    EXPECT_EQ(test::difference(out.download(), want), "") << s.tokens << " x " << s.d;
  }

  static void expect_sums(const Shape& s, const Tokens& tokens, Write write) {
    const auto d_out = test::random_elements<T>(s.first + s.tokens * s.stride(), 6);
    auto want = test::random_elements<float>(s.first + s.vocabulary * s.stride(), 8);
    const DeviceArray<T> device_d_out(d_out);
    const DeviceArray<float> d_table(want);
    const DeviceArray<std::int32_t> device_tokens(tokens), scratch(as_size(embed_backward_scratch(s.tokens)));
    embed_backward(test::gpu(), test::stream(),
                   rows_of(d_table.data() + s.first, s.vocabulary, s.d, s.stride()),
                   rows_of(device_d_out.data() + s.first, s.tokens, s.d, s.stride()), device_tokens.data(),
                   write, scratch.data());

    tensor::InlineStream stream;
    kernels::make_cpu_kernels(1)->embed_backward(
        stream, rows_of(want.data() + s.first, s.vocabulary, s.d, s.stride()),
        rows_of(d_out.data() + s.first, s.tokens, s.d, s.stride()), tokens.data(), write);
    EXPECT_EQ(test::difference(d_table.download(), want), "") << s.tokens << " x " << s.d;
  }
};
using Elements = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(EmbeddingOnGpu, Elements);

TYPED_TEST(EmbeddingOnGpu, CopiesRowsBitForBit) {
  for (const std::int64_t d : {1, 63, 64, 100, 256, 1000, 2056})
    this->expect_rows({21, 17, d}, random_tokens(21, 17, static_cast<unsigned>(d)));
}

TYPED_TEST(EmbeddingOnGpu, CopiesBetweenGapsAndFromAnyAddress) {
  for (const std::int64_t gap : {0, 3, 8})
    for (const std::int64_t first : {0, 1, 8})
      this->expect_rows({9, 5, 72, gap, first}, random_tokens(9, 5, 1));
}

TYPED_TEST(EmbeddingOnGpu, SumsHaveTheBitsOfTheCpu) {
  for (const std::int64_t d : {1, 63, 64, 100, 516})
    for (const Write write : {Write::add, Write::replace}) {
      test::reseed(static_cast<unsigned>(d));
      this->expect_sums({1, 7, d}, {3}, write);
      this->expect_sums({90, 40, d}, random_tokens(90, 40, static_cast<unsigned>(d)), write);
    }
}

TYPED_TEST(EmbeddingOnGpu, SumsBetweenGapsAndAtAnyAddress) {
  for (const std::int64_t gap : {0, 3, 8})
    for (const std::int64_t first : {0, 1, 8})
      for (const Write write : {Write::add, Write::replace})
        this->expect_sums({30, 11, 20, gap, first}, random_tokens(30, 11, 3), write);
}

TYPED_TEST(EmbeddingOnGpu, SumsOneTokenManyTimesAndNoneAtAll) {
  for (const Write write : {Write::add, Write::replace}) {
    this->expect_sums({133, 3, 12}, Tokens(133, 2), write);  // more than are read at once, and not a multiple
    this->expect_sums({133, 3, 12}, Tokens(133, -1), write);
    this->expect_sums({0, 3, 12}, {}, write);
  }
}

TEST(EmbeddingOnGpuChecks, AnotherWidthOrTypeIsAnError) {
  const DeviceArray<float> table(24), out(24);
  const DeviceArray<std::int32_t> tokens(Tokens{0, 1});
  EXPECT_THROW(embed(test::gpu(), test::stream(), rows_of(out.data(), 2, 6, 6),
                     rows_of(table.data(), 3, 8, 8), tokens.data()),
               std::logic_error);
}

}  // namespace
}  // namespace holdfast::cuda
