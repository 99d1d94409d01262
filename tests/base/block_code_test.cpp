#include "src/base/block_code.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "src/base/as_size.hpp"

namespace holdfast {
namespace {

struct Coded {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, back;
};
Coded coded(BlockCode code, const std::vector<float>& x) {
  Coded out;
  out.codes.resize(code_bytes(code, std::ssize(x)));
  out.scales.resize(x.size() / as_size(code_block));
  encode_blocks(code, x, out.codes, out.scales);
  for (std::size_t i = 0; i < x.size(); ++i)
    out.back.push_back(decode(code, code == BlockCode::int8 ? out.codes[i] : out.codes[i / 2], i % 2 == 1,
                              out.scales[i / as_size(code_block)]));
  return out;
}

TEST(BlockCode, IsTheNearestThatTheBlockCanHold) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> x(64 * 40);
  for (float& v : x) v = normal(generator);
  std::fill_n(x.begin() + 64, 64, 0.0f);
  for (const BlockCode code : {BlockCode::int8, BlockCode::nf4}) {
    const Coded c = coded(code, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float scale = c.scales[i / 64];
      float nearest = 1e9f;
      for (int v = 0; v < (code == BlockCode::int8 ? 255 : 16); ++v)
        nearest = std::min(
            nearest,
            std::abs(x[i] - decode(code, static_cast<std::uint8_t>(code == BlockCode::int8 ? v - 127 : v),
                                   false, scale)));
      EXPECT_LE(std::abs(c.back[i] - x[i]), nearest + 1e-6f * scale) << i;
    }
    for (std::size_t i = 64; i < 128; ++i) EXPECT_EQ(c.back[i], 0.0f);
    // What is decoded is a fixed point: coding it again changes nothing.
    EXPECT_EQ(coded(code, c.back).codes, c.codes);
  }
}

TEST(BlockCode, KeepsTheLargestOfABlockAndZero) {
  std::vector<float> x(64, 0.0f);
  x[3] = -0.125f;
  x[17] = 0.125f;
  x[18] = 0.0625f;
  for (const BlockCode code : {BlockCode::int8, BlockCode::nf4}) {
    const Coded c = coded(code, x);
    EXPECT_EQ(c.scales, std::vector<float>{0.125f});
    EXPECT_FLOAT_EQ(c.back[3], -0.125f);
    EXPECT_FLOAT_EQ(c.back[17], 0.125f);
    EXPECT_EQ(c.back[0], 0.0f);
  }
  EXPECT_EQ(code_bytes(BlockCode::nf4, 128), 64);
  EXPECT_EQ(scale_bytes(128), 8);
}

TEST(BlockCode, RefusesHalfBlocks) {
  std::vector<float> x(65), scales(1);
  std::vector<std::uint8_t> codes(65);
  EXPECT_THROW(encode_blocks(BlockCode::int8, x, codes, scales), std::logic_error);
}

}  // namespace
}  // namespace holdfast
