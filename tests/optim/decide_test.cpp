#include <gtest/gtest.h>

#include "src/optim/sharded_adamw.hpp"

namespace holdfast::optim {
namespace {

TEST(Decide, ScalesBySumOfTokensAndClipsTheGlobalNorm) {
  config::Optim o;
  o.clip_norm = 1.0;
  const auto calm = decide(o, 0, 100, 0.25 * 64 * 64, 64);  // norm of the mean gradient: 0.5
  EXPECT_DOUBLE_EQ(calm.gradient_norm, 0.5);
  EXPECT_FLOAT_EQ(calm.scalars.gradient_scale, 1.f / 64);
  const auto wild = decide(o, 0, 100, 16.0 * 64 * 64, 64);
  EXPECT_DOUBLE_EQ(wild.gradient_norm, 4.0);
  EXPECT_FLOAT_EQ(wild.scalars.gradient_scale, 1.f / 256);
  o.clip_norm = 0;
  EXPECT_FLOAT_EQ(decide(o, 0, 100, 16.0 * 64 * 64, 64).scalars.gradient_scale, 1.f / 64);
}

TEST(Decide, WithoutValidTokensNothingIsUpdated) { EXPECT_FALSE(decide({}, 3, 100, 0, 0).update); }

TEST(ShardedAdamW, UpdatesWhatIsHeldAndCountsWhatIsOwned) {
  config::ModelShape shape;
  const auto layout = shard::layout_of(shape, shard::mesh_of(config::Strategy::no_shard, 0, 1, 2, 1));
  const auto tensors = config::tensors_of(shape);
  auto kernels = kernels::make_cpu_kernels(1);
  tensor::InlineStream stream;
  tensor::Arena arena;
  ShardedAdamW adamw(layout, tensors, *kernels, stream, arena);
  arena.commit();
  std::vector<float> parameters(static_cast<std::size_t>(layout.arena_elements), 1.f),
      gradients(parameters.size(), 2.f);
  std::int64_t owned = 0;
  for (const auto& piece : layout.owned) owned += piece.count;
  EXPECT_DOUBLE_EQ(adamw.squares(gradients.data()).value(), 4.0 * static_cast<double>(owned));
  config::Optim o;
  o.warmup_steps = 0, o.lr = o.min_lr = 0.1, o.weight_decay = 0.5, o.clip_norm = 0;
  adamw.update(parameters.data(), gradients.data(), decide(o, 0, 100, 0, 1));
  for (const auto& piece : layout.held) {  // first step: p - lr * wd * p - lr * g / |g|
    const float expected = tensors[static_cast<std::size_t>(piece.tensor)].decay ? 0.85f : 0.9f;
    EXPECT_NEAR(parameters[static_cast<std::size_t>(piece.offset)], expected, 1e-5);
    EXPECT_NEAR(parameters[static_cast<std::size_t>(piece.offset + piece.count - 1)], expected, 1e-5);
  }
}

}  // namespace
}  // namespace holdfast::optim
