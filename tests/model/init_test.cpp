#include "src/model/init.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace holdfast::model {
namespace {

std::vector<float> whole(const config::ModelShape& shape, const config::TensorSpec& t, std::uint64_t seed) {
  std::vector<float> out(t.elements());
  initial_weights(shape, t, seed, 0, out);
  return out;
}

TEST(InitialWeights, AnySliceHasTheBitsOfTheWhole) {
  const config::ModelShape shape;
  for (const auto& t : config::tensors_of(shape)) {
    const auto all = whole(shape, t, 7);
    for (const std::size_t first : {0u, 1u, 3u, 31u}) {
      std::vector<float> part(std::min<std::size_t>(first % 2 == 0 ? 29 : 70'001, all.size() - first));
      initial_weights(shape, t, 7, static_cast<std::int64_t>(first), part);
      for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], all[first + i]) << t.name;
    }
  }
}

TEST(InitialWeights, AreNormalWithTheRightDeviation) {
  config::ModelShape shape;
  shape.layers = 8;
  shape.qkv_bias = true;
  for (const auto& t : config::tensors_of(shape)) {
    const auto w = whole(shape, t, 3);
    if (t.kind != config::TensorKind::matrix) {
      for (const float x : w) ASSERT_EQ(x, t.kind == config::TensorKind::gain ? 1.0f : 0.0f) << t.name;
      continue;
    }
    double sum = 0, squares = 0, fourth = 0;
    for (const float x : w) {
      sum += x;
      squares += double(x) * x;
      fourth += std::pow(double(x), 4);
    }
    const auto n = static_cast<double>(w.size());
    const bool output = t.name.ends_with("o_proj.weight") || t.name.ends_with("down_proj.weight");
    const double want = output ? 0.02 / 4 : 0.02;
    EXPECT_NEAR(sum / n, 0, 5 * want / std::sqrt(n)) << t.name;
    EXPECT_NEAR(std::sqrt(squares / n), want, 5 * want / std::sqrt(2 * n)) << t.name;
    EXPECT_NEAR(fourth / n / std::pow(squares / n, 2), 3, 0.6) << t.name;
  }
}

TEST(InitialWeights, DependOnSeedAndName) {
  const config::ModelShape shape;
  const auto tensors = config::tensors_of(shape);
  const auto& q0 = tensors[2];
  auto q1 = q0;
  q1.name = "model.layers.1.self_attn.q_proj.weight";
  EXPECT_NE(whole(shape, q0, 1), whole(shape, q0, 2));
  EXPECT_NE(whole(shape, q0, 1), whole(shape, q0, 1ull << 40 | 1));
  EXPECT_NE(whole(shape, q0, 1), whole(shape, q1, 1));
  EXPECT_EQ(whole(shape, q0, 1), whole(shape, q0, 1));
}

}  // namespace
}  // namespace holdfast::model
