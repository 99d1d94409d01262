// cuDNN's attention against fp64, in the shapes that models have.
#include "tests/cuda/attention/attention_on_gpu.hpp"

#include <gtest/gtest.h>

namespace holdfast::cuda {
namespace {

using test::AttentionCase;

const std::vector<AttentionCase>& cases() {
  // Rows, sequence, query heads, key heads, head size; lengths that no tile divides, too.
  static const std::vector<AttentionCase> all = {
      {{2, 128, 4, 4, 64}},      {{1, 256, 4, 2, 128}},     {{2, 320, 8, 2, 128}},      {{3, 200, 6, 3, 64}},
      {{1, 512, 4, 4, 128}, 96}, {{2, 256, 4, 1, 64}, 100}, {{1, 128, 2, 2, 64}, 0, 16}};
  return all;
}

TEST(CudnnAttention, AgreesWithFp64) {
  for (const bool deterministic : {true, false}) {
    const auto engine = make_cudnn_attention(test::gpu(), deterministic);
    for (const AttentionCase& what : cases()) EXPECT_EQ(test::wrong_with(*engine, what, deterministic), "");
  }
}

TEST(CudnnAttention, AnotherEngineGivesTheSameBits) {
  const AttentionCase what{{2, 512, 8, 2, 128}, 100};
  const auto x = testing::random_bf16(what.shape.tokens(), what.shape.packed(), 1),
             dy = testing::random_bf16(what.shape.tokens(), what.shape.width(), 2);
  const auto one = make_cudnn_attention(test::gpu(), true), two = make_cudnn_attention(test::gpu(), true);
  EXPECT_TRUE(
      test::same_bits(test::run_attention(*one, what, x, dy), test::run_attention(*two, what, x, dy)));
}

}  // namespace
}  // namespace holdfast::cuda
