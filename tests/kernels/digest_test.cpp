#include <gtest/gtest.h>

#include <cmath>

#include "src/base/digest.hpp"
#include "src/kernels/cpu_math.hpp"
#include "src/kernels/kernels.hpp"
#include "src/tensor/stream.hpp"

namespace holdfast::kernels {
namespace {

template <class T>
void expect_digest(int threads) {
  constexpr std::int64_t count = 50'001, first = (std::int64_t{1} << 33) + 5;
  std::vector<T> x(count);
  for (std::int64_t i = 0; i < count; ++i) x[i] = rounded<T>(static_cast<float>(i % 977) - 400.5f);
  x[0] = rounded<T>(INFINITY);
  x[20'000] = rounded<T>(-INFINITY);
  x[count - 1] = rounded<T>(std::nanf(""));
  tensor::InlineStream stream;
  DigestSums sums{11, 4};
  make_cpu_kernels(threads)->digest(stream, x.data(), dtype_of<T>(), first, count, &sums);
  EXPECT_EQ(sums.digest, 11 + digest_part(first, x.data(), dtype_of<T>(), count)) << threads << " threads";
  EXPECT_EQ(sums.not_finite, 4u + 3) << threads << " threads";
}

TEST(Digest, IsThatOfOnePartWithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 4}) {
    expect_digest<float>(threads);
    expect_digest<Bf16>(threads);
  }
}

}  // namespace
}  // namespace holdfast::kernels
