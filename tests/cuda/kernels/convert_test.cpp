#include "src/cuda/kernels/convert.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using kernels::DType;
using test::DeviceArray;
using Floats = std::vector<float>;

std::vector<std::uint16_t> bits(const std::vector<Bf16>& x) {
  std::vector<std::uint16_t> out;
  for (const Bf16 e : x) out.push_back(e.bits);
  return out;
}
std::vector<Bf16> rounded(const Floats& x) {
  std::vector<Bf16> out;
  for (const float e : x) out.push_back(to_bf16(e));
  return out;
}
std::vector<Bf16> narrowed(const Floats& x) {
  const DeviceArray<float> in(x);
  const DeviceArray<Bf16> out(x.size());
  convert(test::gpu(), test::stream(), out.data(), DType::bf16, in.data(), DType::fp32,
          static_cast<std::int64_t>(x.size()));
  test::finish();
  return out.download();
}
/// In place, `first` elements behind an aligned address.
std::vector<Bf16> narrowed_in_place(const Floats& x, std::size_t first) {
  DeviceArray<float> array(first + x.size());
  Floats with_gap(first, NAN);
  with_gap.insert(with_gap.end(), x.begin(), x.end());
  array.upload(with_gap);
  float* const at = array.data() + first;
  convert(test::gpu(), test::stream(), at, DType::bf16, at, DType::fp32, static_cast<std::int64_t>(x.size()));
  test::finish();
  const Floats result = array.download();
  std::vector<Bf16> out(x.size());
  std::memcpy(static_cast<void*>(out.data()), result.data() + first, out.size() * sizeof(Bf16));
  return out;
}

TEST(Convert, WidensAndNarrowsEveryBf16) {
  std::vector<Bf16> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const DeviceArray<Bf16> in(all);
  const DeviceArray<float> wide(all.size());
  convert(test::gpu(), test::stream(), wide.data(), DType::fp32, in.data(), DType::bf16, 65536);
  test::finish();
  const Floats numbers = wide.download();
  const auto back = bits(narrowed(numbers));
  for (std::uint32_t i = 0; i < 65536; ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(numbers[i]), i << 16);
    ASSERT_EQ(back[i], (i & 0x7fff) > 0x7f80 ? i | 0x40 : i);
  }
}

TEST(Convert, RoundsAsTheHostDoes) {
  Floats x;
  for (std::uint32_t upper = 0; upper < 65536; upper += 7)
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
  EXPECT_EQ(bits(narrowed(x)), bits(rounded(x)));
}

TEST(Convert, OfAnyCountAtAnyAddress) {
  const Floats x = test::random_elements<float>(2100, 1);
  for (const std::int64_t count : {0, 1, 7, 8, 9, 2047, 2048, 2049})
    for (const std::int64_t first : {0, 1, 4}) {
      const DeviceArray<float> in(x);
      const DeviceArray<Bf16> out(x.size());
      convert(test::gpu(), test::stream(), out.data() + first, DType::bf16, in.data() + first, DType::fp32,
              count);
      test::finish();
      auto want = std::vector<std::uint16_t>(x.size(), 0xffff);  // poison
      for (std::int64_t i = first; i < first + count; ++i) want[i] = to_bf16(x[i]).bits;
      EXPECT_EQ(bits(out.download()), want);
    }
}

TEST(Convert, InPlaceInAnyOrderOfBlocks) {
  std::uint64_t seed = 20;
  for (const std::int64_t count : {1, 7, 2048, 16'383, 16'384, 16'385, 32'768, 32'769, 100'003})
    for (const std::size_t first : {0, 1}) {
      test::reseed(++seed);
      const Floats x = test::random_elements<float>(count, static_cast<unsigned>(seed));
      EXPECT_EQ(bits(narrowed_in_place(x, first)), bits(rounded(x))) << count;
    }
}

TEST(Convert, ToTheSameTypeCopies) {
  const Floats x = test::random_elements<float>(5001, 1);
  const std::vector<Bf16> narrow = rounded(x);
  const DeviceArray<float> in(x), out(x.size());
  const DeviceArray<Bf16> narrow_in(narrow), narrow_out(x.size());
  convert(test::gpu(), test::stream(), out.data(), DType::fp32, in.data(), DType::fp32, 5001);
  convert(test::gpu(), test::stream(), narrow_out.data(), DType::bf16, narrow_in.data(), DType::bf16, 5001);
  convert(test::gpu(), test::stream(), in.data(), DType::fp32, in.data(), DType::fp32, 5001);
  test::finish();
  EXPECT_EQ(out.download(), x);
  EXPECT_EQ(in.download(), x);
  EXPECT_EQ(narrow_out.download(), narrow);
}

TEST(Convert, RefusesToWidenInPlace) {
  const DeviceArray<float> x(4);
  EXPECT_THROW(convert(test::gpu(), test::stream(), x.data(), DType::fp32, x.data(), DType::bf16, 4),
               std::logic_error);
  EXPECT_THROW(convert(test::gpu(), test::stream(), x.data(), DType::e4m3, x.data(), DType::fp32, 4),
               std::logic_error);
}

}  // namespace
}  // namespace holdfast::cuda
