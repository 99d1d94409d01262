#include "src/optim/groups.hpp"

#include <gtest/gtest.h>

namespace holdfast::optim {
namespace {

config::ModelShape qwen_like() {
  config::ModelShape shape;
  shape.qkv_bias = true;
  return shape;
}

std::size_t index_of(const std::vector<config::TensorSpec>& tensors, const std::string& name) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == name) return i;
  ADD_FAILURE() << name;
  return 0;
}

TEST(TensorGroups, WithoutTextsMatricesDecayAndNothingElse) {
  const auto tensors = config::tensors_of(qwen_like());
  const auto groups = tensor_groups({}, tensors);
  ASSERT_EQ(groups.settings.size(), 1u);
  EXPECT_EQ(groups.settings[0].weight_decay, 0.1);
  EXPECT_EQ(groups.settings[0].lr_scale, 1);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(groups.of[i], 0);
    EXPECT_EQ(groups.decays[i], tensors[i].kind == config::TensorKind::matrix) << tensors[i].name;
  }
}

TEST(TensorGroups, VectorsDecayOnlyWhereAGroupNamesADecay) {
  config::Optim o;
  o.groups = {"*.input_layernorm.* weight_decay=0.02", "*bias lr_scale=2", "*embed* weight_decay=0"};
  const auto tensors = config::tensors_of(qwen_like());
  const auto groups = tensor_groups(o, tensors);
  ASSERT_EQ(groups.settings.size(), 4u);
  const auto gain = index_of(tensors, "model.layers.1.input_layernorm.weight");
  EXPECT_EQ(groups.of[gain], 1);
  EXPECT_TRUE(groups.decays[gain]);
  EXPECT_EQ(groups.settings[1].weight_decay, 0.02);
  const auto bias = index_of(tensors, "model.layers.0.self_attn.k_proj.bias");
  EXPECT_EQ(groups.of[bias], 2);
  EXPECT_FALSE(groups.decays[bias]);
  EXPECT_EQ(groups.settings[2].lr_scale, 2);
  EXPECT_EQ(groups.settings[2].weight_decay, 0.1) << "matrices of this group would decay as usual";
  const auto embedding = index_of(tensors, "model.embed_tokens.weight");
  EXPECT_EQ(groups.of[embedding], 3);
  EXPECT_EQ(groups.settings[3].weight_decay, 0);
  EXPECT_EQ(groups.of[index_of(tensors, "lm_head.weight")], 0);
  EXPECT_FALSE(groups.decays[index_of(tensors, "model.norm.weight")]);
}

}  // namespace
}  // namespace holdfast::optim
