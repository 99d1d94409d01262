#include "src/config/model_shape.hpp"

#include <gtest/gtest.h>

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

TEST(ModelShape, KindsFollowNames) {
  ModelShape shape;
  shape.qkv_bias = true;
  for (const auto& t : tensors_of(shape)) {
    const auto kind = t.name.ends_with(".bias")                  ? TensorKind::bias
                      : t.name.find("norm") != std::string::npos ? TensorKind::gain
                                                                 : TensorKind::matrix;
    EXPECT_EQ(t.kind, kind) << t.name;
  }
}

}  // namespace
}  // namespace holdfast::config
