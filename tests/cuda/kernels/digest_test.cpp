#include "src/cuda/kernels/digest.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/base/digest.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using kernels::DigestSums;
using test::DeviceArray;

template <class T>
DigestSums digest_of(const std::vector<T>& x, std::size_t skipped, std::int64_t first,
                     const DigestSums& before = {}) {
  const DeviceArray<T> device(x);
  const DeviceArray<DigestSums> sums(std::vector<DigestSums>{before});
  digest(test::gpu(), test::stream(), device.data() + skipped, dtype_of<T>(), first,
         std::ssize(x) - static_cast<std::int64_t>(skipped), sums.data());
  test::finish();
  return sums.download()[0];
}

template <class T>
class DigestOnGpu : public ::testing::Test {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(DigestOnGpu, Types);

TYPED_TEST(DigestOnGpu, IsTheHostsOfAnyCountAtAnyAddress) {
  for (const std::size_t count : {1, 2, 31, 33, 255, 257, 2047, 2048, 2049, 10'007})
    for (const std::size_t skipped : {0, 1, 3}) {
      const auto x = test::random_elements<TypeParam>(static_cast<std::int64_t>(count + skipped), 7);
      const std::int64_t first = (std::int64_t{1} << 33) + 5;
      const DigestSums got = digest_of(x, skipped, first);
      EXPECT_EQ(got.digest, digest_part(static_cast<std::uint64_t>(first), x.data() + skipped,
                                        dtype_of<TypeParam>(), static_cast<std::int64_t>(count)))
          << count << " elements behind " << skipped;
      EXPECT_EQ(got.not_finite, 0u);
    }
}

TYPED_TEST(DigestOnGpu, AddsToWhatIsThereAndNothingForNone) {
  const auto x = test::random_elements<TypeParam>(100, 3);
  const DigestSums before{11, 4};
  EXPECT_EQ(digest_of(x, 0, 0, before).digest, 11 + digest_of(x, 0, 0).digest);
  EXPECT_EQ(digest_of(x, 0, 0, before).not_finite, 4u);
  EXPECT_EQ(digest_of(x, x.size(), 0, before).digest, 11u);
}

TYPED_TEST(DigestOnGpu, CountsWhatIsNotFinite) {
  auto x = test::random_elements<TypeParam>(5000, 3);
  x[0] = test::element<TypeParam>(INFINITY);
  x[77] = test::element<TypeParam>(-INFINITY);
  x[4999] = test::element<TypeParam>(std::nanf(""));
  x[78] = test::element<TypeParam>(std::numeric_limits<float>::max() / 2);
  EXPECT_EQ(digest_of(x, 0, 0).not_finite, 3u);
}

}  // namespace
}  // namespace holdfast::cuda
