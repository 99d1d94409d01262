// FLOPs of a token against numbers that were counted by hand, and devices by their names.
#include "src/config/model_flops.hpp"

#include <gtest/gtest.h>

namespace holdfast::config {
namespace {

/// V 512, d 64, L 2, f 176, 4 heads, 2 for keys and values: 2 x 512 x 64 in both tables; a block has 12,288
/// in attention, 33,792 in SwiGLU, 128 in norms; 64 in the last norm.
constexpr double products = 512 * 64 + 2 * (12288 + 33792 + 128) + 64;
constexpr double attention_of_100 = 12.0 * 2 * 4 * 16 * 100;

TEST(ModelFlops, CountsProductsAndAttention) {
  ModelShape shape;
  ASSERT_EQ(parameters_of(shape), static_cast<std::int64_t>(products + 512 * 64));
  EXPECT_EQ(token_flops(shape, 100).palm, 6 * products + attention_of_100);
  EXPECT_EQ(token_flops(shape, 100).causal, 6 * products + attention_of_100 / 2);
  shape.tied_embeddings = true;  // the table is the head
  EXPECT_EQ(token_flops(shape, 100).palm, 6 * products + attention_of_100);
}

/// With a window of 20, 100 tokens attend to 36 % of what they do without one; one of two blocks has it.
TEST(ModelFlops, WindowsHideKeys) {
  ModelShape shape;
  shape.window = 20;
  shape.full_every = 2;
  EXPECT_DOUBLE_EQ(token_flops(shape, 100).palm, 6 * products + attention_of_100 / 2 * 1.36);
  EXPECT_DOUBLE_EQ(token_flops(shape, 10).palm, 6 * products + attention_of_100 / 10) << "no longer than it";
}

TEST(ModelFlops, FrozenWeightsHaveNoGradients) {
  ModelShape shape;
  shape.adapters.rank = 8;
  shape.adapters.on[as_size(Projection::q)] = true;
  const double adapters = 2 * 8 * (64 + 64);  // A and B of both blocks
  EXPECT_EQ(token_flops(shape, 100).palm, 4 * products + 6 * adapters + attention_of_100);
}

TEST(ModelFlops, KnowsDevicesByTheirNames) {
  EXPECT_EQ(peak_flops_of("NVIDIA H100 80GB HBM3"), 989.4e12);
  EXPECT_EQ(peak_flops_of("NVIDIA H200"), 989.4e12);
  EXPECT_EQ(peak_flops_of("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(peak_flops_of("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(peak_flops_of("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), 0);
  EXPECT_EQ(peak_flops_of("NVIDIA GeForce RTX 4090"), 0);
  EXPECT_EQ(peak_flops_of(""), 0);
}

}  // namespace
}  // namespace holdfast::config
