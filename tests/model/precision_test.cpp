// Micro-batches in bf16 against the same micro-batches in fp32: weights are bf16 numbers in both, so that
// what differs is the arithmetic alone.
#include <gtest/gtest.h>

#include "tests/model/stand.hpp"

namespace holdfast::testing {
namespace {

struct Agreement {
  double cosine = 0, norm_error = 0;
};
Agreement agreement(const Floats& got, const Floats& want) {
  double dot = 0, a = 0, b = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    dot += static_cast<double>(got[i]) * want[i];
    a += static_cast<double>(got[i]) * got[i];
    b += static_cast<double>(want[i]) * want[i];
  }
  return {dot / std::sqrt(a * b), std::fabs(std::sqrt(a / b) - 1)};
}

config::ModelShape small(bool qwen) {
  config::ModelShape s;  // tiny
  if (qwen) s.qkv_bias = s.tied_embeddings = true;
  if (!qwen) {
    s.rope_scaling_factor = 8;
    s.rope_original_sequence = 64;
  }
  return s;
}

class Precision : public ::testing::TestWithParam<bool> {};

TEST_P(Precision, Bf16GradientsPointWhereFp32GradientsPoint) {
  const auto shape = small(GetParam());
  const TestBatch b = make_batch(shape, 2, 96, true);
  MemoryWeights exact = lively(shape, DType::bf16, 4), rounded = exact;
  Stand bf16(shape, options_of(2, 96, DType::bf16));
  const auto loss = loss_of(bf16.transformer, rounded, b.batch());

  MemoryWeights wide(shape, 0);
  wide.values = exact.values;
  Stand fp32(shape, options_of(2, 96));
  const auto want = loss_of(fp32.transformer, wide, b.batch());
  EXPECT_EQ(loss.valid, want.valid);
  EXPECT_NEAR(loss.mean() / want.mean(), 1, 1e-3);

  const auto got = by_tensor(rounded, rounded.gradients), from = by_tensor(wide, wide.gradients);
  double worst_cosine = 1, worst_norm = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    const auto [cosine, norm_error] = agreement(got[k], from[k]);
    EXPECT_GE(cosine, 0.999) << rounded.specs[k].name;
    EXPECT_LE(norm_error, 0.01) << rounded.specs[k].name;
    EXPECT_NE(got[k], from[k]) << "bf16 was not used for " << rounded.specs[k].name;
    worst_cosine = std::fmin(worst_cosine, cosine);
    worst_norm = std::fmax(worst_norm, norm_error);
  }
  std::printf("bf16: loss off by %.1e, worst cosine %.6f, worst norm error %.1e\n",
              std::fabs(loss.mean() / want.mean() - 1), worst_cosine, worst_norm);
}
INSTANTIATE_TEST_SUITE_P(Families, Precision, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Qwen" : "Llama3"; });

TEST(Precision, BuffersInBf16ChangeTheRotationsOnly) {
  const auto shape = small(false);
  const TestBatch b = make_batch(shape, 2, 96, true);
  auto loss_with = [&](DType buffers) {
    MemoryWeights w = lively(shape, DType::bf16, 4);
    auto options = options_of(2, 96, DType::bf16);
    options.buffers = buffers;
    return loss_of(Stand(shape, options).transformer, w, b.batch()).mean();
  };
  const double fp32 = loss_with(DType::fp32), bf16 = loss_with(DType::bf16);
  EXPECT_NE(fp32, bf16);
  EXPECT_NEAR(bf16 / fp32, 1, 3e-3);
}

TEST(Precision, ThreadsChangeNoBit) {
  const auto shape = small(true);
  std::vector<std::vector<Floats>> results;
  for (const int threads : {1, 2, 3}) {
    MemoryWeights w = lively(shape, DType::bf16, 4);
    Stand stand(shape, options_of(2, 200, DType::bf16), threads);
    stand.transformer.forward_backward(w, make_batch(shape, 2, 200, true).batch());
    results.push_back(w.gradients);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace holdfast::testing
