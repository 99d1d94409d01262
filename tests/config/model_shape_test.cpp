#include "src/config/model_shape.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/config/architecture.hpp"

namespace holdfast::config {
namespace {

TEST(ModelShape, StoredTensorsCoverAllInOrder) {
  for (const bool bias : {false, true}) {
    for (const bool tied : {false, true}) {
      ModelShape shape;
      shape.qkv_bias = bias;
      shape.tied_embeddings = tied;
      const auto tensors = tensors_of(shape);
      int next = 0, unit = 0;
      for (const auto& stored : stored_tensors_of(shape)) {
        EXPECT_EQ(stored.first_part, next);
        EXPECT_GE(stored.unit, unit);
        unit = stored.unit;
        std::int64_t rows = 0;
        for (; next < stored.first_part + stored.parts; ++next) {
          const auto& part = tensors[next];
          EXPECT_EQ(part.cols, stored.cols) << part.name << ": parts are concatenated along rows";
          EXPECT_EQ(part.unit, stored.unit);
          rows += part.rows;
        }
        EXPECT_EQ(rows, stored.rows);
      }
      EXPECT_EQ(next, static_cast<int>(tensors.size()));
      EXPECT_EQ(unit, shape.layers + 1);
    }
  }
}

TEST(ModelShape, BiasesArePackedAfterTheirMatrices) {
  ModelShape shape;
  shape.qkv_bias = true;
  const auto tensors = tensors_of(shape);
  const auto stored = stored_tensors_of(shape);
  const auto first_name = [&](std::size_t i) { return tensors[stored[i].first_part].name; };
  ASSERT_EQ(first_name(2), "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(stored[2].parts, 3);
  ASSERT_EQ(first_name(3), "model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(stored[3].parts, 3);
  EXPECT_EQ(stored[3].rows, 64 + 32 + 32);
  EXPECT_EQ(stored[3].cols, 1);
  EXPECT_EQ(first_name(4), "model.layers.0.self_attn.o_proj.weight");
  ModelShape plain;
  EXPECT_EQ(parameters_of(shape), parameters_of(plain) + 2 * (64 + 32 + 32));
}

TEST(ModelShape, HeadsNeedNotBeAsWideAsTheModel) {
  ModelShape shape;  // width 64, 4 heads, 2 of keys
  shape.head_dim = 24;
  shape.qk_norm = true;
  const auto tensors = tensors_of(shape);
  const auto size_of = [&](const std::string& name) {
    const auto found = std::ranges::find(tensors, "model.layers.1.self_attn." + name, &TensorSpec::name);
    return std::pair(found->rows, found->cols);
  };
  EXPECT_EQ(size_of("q_proj.weight"), std::pair(96L, 64L));
  EXPECT_EQ(size_of("v_proj.weight"), std::pair(48L, 64L));
  EXPECT_EQ(size_of("o_proj.weight"), std::pair(64L, 96L));
  EXPECT_EQ(size_of("q_norm.weight"), std::pair(1L, 24L));
  EXPECT_EQ(size_of("k_norm.weight"), std::pair(1L, 24L));
}

TEST(ModelShape, NormsMayComeBehind) {
  ModelShape shape;
  shape.head_dim = 24;
  shape.qk_norm = shape.qk_norm_whole = shape.norm_after = true;
  std::vector<std::string> names;
  for (const auto& t : tensors_of(shape))
    if (t.unit == 1 && t.kind == TensorKind::gain) names.push_back(t.name + " " + std::to_string(t.cols));
  const std::string block = "model.layers.0.";
  EXPECT_EQ(names, (std::vector{block + "self_attn.q_norm.weight 96", block + "self_attn.k_norm.weight 48",
                                block + "post_attention_layernorm.weight 64",
                                block + "post_feedforward_layernorm.weight 64"}));
}

TEST(ModelShape, FusedTensorsAreNamedAsOneAndLieWhereThePartsWould) {
  ModelShape shape;
  const auto apart = stored_tensors_of(shape);
  shape.fused = true;
  const auto fused = stored_tensors_of(shape);
  ASSERT_EQ(fused.size(), apart.size());
  for (std::size_t i = 0; i < fused.size(); ++i) {
    EXPECT_EQ(fused[i].parts, 1);
    EXPECT_EQ(std::pair(fused[i].rows, fused[i].cols), std::pair(apart[i].rows, apart[i].cols));
  }
  EXPECT_EQ(tensors_of(shape)[2].name, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(tensors_of(shape)[5].name, "model.layers.0.mlp.gate_up_proj.weight");
}

/// The gradient of attention's output lies where the branch does, which is as wide as the model.
TEST(ModelShape, TheBranchHasRoomForTheGradientOfAttention) {
  for (const int head_dim : {8, 16, 24}) {
    ModelShape shape;
    shape.head_dim = head_dim;
    const auto rows = activation_rows(shape, {});
    const auto branch = std::ranges::find(rows, Activation::branch, &ActivationRow::what);
    EXPECT_EQ(branch->cols, std::max(64, 4 * head_dim));
  }
}

TEST(ModelShape, KindsFollowNames) {
  ModelShape shape;
  shape.qkv_bias = shape.o_bias = shape.mlp_bias = shape.qk_norm = true;
  for (const auto& t : tensors_of(shape)) {
    const auto kind = t.name.ends_with(".bias")                  ? TensorKind::bias
                      : t.name.find("norm") != std::string::npos ? TensorKind::gain
                                                                 : TensorKind::matrix;
    EXPECT_EQ(t.kind, kind) << t.name;
  }
}

}  // namespace
}  // namespace holdfast::config
