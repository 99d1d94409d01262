// The state digest: one number, however it is computed and however a tensor is cut.
#include "src/base/digest.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace holdfast {
namespace {

std::vector<DigestBy> here() {
  std::vector<DigestBy> ways = {DigestBy::plain};
  if (fastest_digest() != DigestBy::plain) ways.push_back(DigestBy::avx2);
  if (fastest_digest() == DigestBy::avx512) ways.push_back(DigestBy::avx512);
  return ways;
}

/// Bytes of which none is like another for long.
std::vector<unsigned char> noise(std::size_t bytes) {
  std::vector<unsigned char> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<unsigned char>(mix64(i) >> 32);
  return out;
}

TEST(Digest, isTheSumOfItsElementsHoweverItIsComputed) {
  const std::vector<unsigned char> bytes = noise(4 * 1100 + 1);
  for (const DType type : {DType::fp32, DType::bf16})
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{12345}, ~std::uint64_t{0} - 20})
      for (std::int64_t count : {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 63, 64, 1023, 1100})
        for (const std::size_t shift : {0u, 1u}) {  // memory need not be aligned
          std::uint64_t sum = 0;
          for (std::int64_t i = 0; i < count; ++i) {
            std::uint32_t bits = 0;  // little-endian: the low half of it is a bf16
            std::memcpy(&bits, bytes.data() + shift + i * bytes_of(type), bytes_of(type));
            sum += digest_element(first + static_cast<std::uint64_t>(i), bits);
          }
          for (const DigestBy by : here())
            EXPECT_EQ(digest_part(first, bytes.data() + shift, type, count, by), sum)
                << count << " elements by " << static_cast<int>(by);
        }
}

TEST(Digest, doesNotDependOnHowATensorIsCut) {
  const std::vector<unsigned char> bytes = noise(4 * 1000);
  const std::uint64_t whole = digest_part(0, bytes.data(), DType::fp32, 1000);
  for (std::int64_t cut = 0; cut <= 1000; cut += 37)
    EXPECT_EQ(
        digest_part(0, bytes.data(), DType::fp32, cut) +
            digest_part(static_cast<std::uint64_t>(cut), bytes.data() + 4 * cut, DType::fp32, 1000 - cut),
        whole);
}

TEST(Digest, isThatOfEarlierVersions) {
  const float values[] = {0.0f, 1.0f, -2.5f};
  EXPECT_EQ(digest_part(7, values),
            digest_element(7, 0) + digest_element(8, 0x3f800000) + digest_element(9, 0xc0200000));
  EXPECT_EQ(digest_element(0, 0), 0xf6c78eb1892a7202u);
}

}  // namespace
}  // namespace holdfast
