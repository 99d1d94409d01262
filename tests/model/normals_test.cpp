#include "src/model/normals.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "src/base/digest.hpp"
#include "src/tensor/philox.hpp"

namespace holdfast::model {
namespace {

constexpr std::uint64_t name = 0x123456789abcdef0, seed = 0xfedcba9876543210;

/// Box and Muller with the C library's functions, in more than fp64.
std::vector<float> expected(std::uint64_t first, double scale, std::size_t count) {
  const auto half = [](std::uint64_t x, int shift) { return static_cast<std::uint32_t>(x >> shift); };
  std::vector<float> out;
  for (std::uint64_t block = first; out.size() < count; ++block) {
    const auto bits = tensor::philox({half(block, 0), half(block, 32), half(name, 0), half(name, 32)},
                                     {half(seed, 0), half(seed, 32)});
    for (std::size_t pair = 0; pair < 4; pair += 2) {
      const long double radius = std::sqrt(-2 * std::log((bits[pair] + 1.0L) * 0x1p-32L)),
                        angle = 2 * std::numbers::pi_v<long double> * 0x1p-32L * bits[pair + 1];
      for (const long double x : {radius * std::cos(angle), radius * std::sin(angle)})
        out.push_back(static_cast<float>(static_cast<long double>(scale) * x));
    }
  }
  out.resize(count);
  return out;
}

TEST(Normals, AreThoseOfTheFormulaToTheLastBitOfFp32OrTheOneBesideIt) {
  constexpr std::size_t count = 400'000;
  std::vector<float> got(count);
  normals((1ull << 33) - 40'000, name, seed, 0.02, got);  // across a carry into the counter's second word
  const std::vector<float> want = expected((1ull << 33) - 40'000, 0.02, count);
  int others = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (got[i] == want[i]) continue;
    ASSERT_TRUE(got[i] == std::nextafter(want[i], INFINITY) || got[i] == std::nextafter(want[i], -INFINITY))
        << i << ": " << got[i] << ", not " << want[i];
    ++others;
  }
  EXPECT_LE(others, 2);  // fp64 rounds to another fp32 once in a hundred million
}

TEST(Normals, HaveTheSameBitsOnEveryProcessor) {
  std::vector<float> all(1 << 20);
  normals(0, name, seed, 1.0, all);
  EXPECT_EQ(digest_part(0, all), 3240614329367774250u);
}

TEST(Normals, AnyPartHasTheBitsOfTheWhole) {
  std::vector<float> all(4 * 1000), part(4 * 300);
  normals(0, name, seed, 1.0, all);
  for (const std::size_t first : {0u, 1u, 63u, 64u, 65u, 700u}) {
    normals(first, name, seed, 1.0, part);
    for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], all[4 * first + i]) << first;
  }
}

}  // namespace
}  // namespace holdfast::model
