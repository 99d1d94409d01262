// Recomputation changes memory and time, never a bit; and the memory is what was planned.
#include <gtest/gtest.h>

#include "src/base/as_size.hpp"
#include "src/model/activations.hpp"
#include "tests/model/stand.hpp"

namespace holdfast::testing {
namespace {

using Mode = config::ActivationCheckpointing;

constexpr Mode modes[] = {Mode::none, Mode::selective, Mode::attention, Mode::full};

/// Sizes that give several tasks and odd tails to every kernel.
config::ModelShape several(bool qwen = false) {
  config::ModelShape s;
  s.width = 96;
  s.layers = 3;
  s.heads = 6;
  s.kv_heads = 3;
  s.ffn = 131;
  s.vocabulary = 200;
  s.qkv_bias = s.tied_embeddings = qwen;
  return s;
}

/// All that a micro-batch has: with the workspace of attention, a loss and its number of labels.
std::int64_t bytes_of(const config::ModelShape& shape, const model::Options& options,
                      std::int64_t workspace) {
  return config::activation_bytes(shape, options) + (workspace + 63) / 64 * 64 + 2 * 64;
}

class Recomputed : public ::testing::TestWithParam<DType> {};

TEST_P(Recomputed, EveryModeHasTheSameBits) {
  config::ModelShape qwen3 = several(), biased = several(), olmo2 = several(), windows = several();
  qwen3.head_dim = 20;
  qwen3.qk_norm = true;
  biased.head_dim = 10;
  biased.qkv_bias = biased.o_bias = biased.mlp_bias = true;
  olmo2.qk_norm = olmo2.qk_norm_whole = olmo2.norm_after = true;
  windows.window = 20;
  windows.full_every = 2;
  windows.window_rope_theta = 500;
  for (const auto& shape : {several(), several(true), qwen3, biased, olmo2, windows}) {
    const TestBatch b = make_batch(shape, 2, 70, true);
    std::vector<std::vector<Floats>> gradients;
    std::vector<tensor::ExactSum> losses;
    for (const Mode mode : modes) {
      MemoryWeights w = lively(shape, GetParam(), 5);
      Stand stand(shape, options_of(2, 70, GetParam(), mode));
      stand.transformer.forward_backward(w, Tokens(2 * 71, 7));  // leaves rubbish in every buffer
      losses.push_back(loss_of(stand.transformer, w, b.batch()).sum);
      EXPECT_EQ(evaluation_of(stand.transformer, w, b.batch()).sum, losses.back());
      EXPECT_EQ(stand.arena.used_bytes(), stand.arena.planned_bytes()) << static_cast<int>(mode);
      gradients.push_back(w.gradients);
    }
    for (std::size_t i = 1; i < losses.size(); ++i) {
      EXPECT_EQ(losses[i], losses[0]) << i;
      EXPECT_EQ(gradients[i], gradients[0]) << i;  // a NaN would differ from itself
    }
  }
}

TEST_P(Recomputed, MemoryIsWhatThePlanSays) {
  const auto kernels = kernels::make_cpu_kernels(1);
  for (const Mode mode : modes) {
    const auto shape = several();
    const auto options = options_of(2, 70, GetParam(), mode);
    Stand stand(shape, options);
    kernels::Attention a;
    a.heads = shape.heads;
    a.kv_heads = shape.kv_heads;
    a.head_size = shape.head_size();
    a.sequence = 70;
    a.qkv.type = GetParam();
    a.qkv.rows = 140;
    a.qkv.cols = 12 * 16;
    EXPECT_EQ(bytes_of(shape, options, kernels->workspace(a)), stand.arena.planned_bytes());
  }
}
INSTANTIATE_TEST_SUITE_P(Types, Recomputed, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

/// Llama-2-7B's width at 4096 tokens: bytes that one more layer costs, by the published formulas.
TEST(Activations, ALayerCostsWhatTheFormulasSay) {
  config::ModelShape shape;
  shape.width = 4096;
  shape.heads = 32;
  shape.kv_heads = 8;
  shape.ffn = 11008;
  shape.vocabulary = 32000;
  constexpr std::int64_t tokens = 4096, d = 4096, kv = 1024, f = 11008, heads = 32;
  constexpr std::int64_t inverse_rms = 8, log_sum = 4 * heads;
  const std::int64_t per_token[] = {12 * d + 4 * kv + 6 * f + log_sum + inverse_rms,
                                    8 * d + 4 * kv + 4 * f + log_sum + inverse_rms,
                                    6 * d + 4 * kv + 4 * f + inverse_rms, 2 * d};
  for (const Mode mode : modes) {
    const auto options = options_of(2, 2048, DType::bf16, mode);
    auto bytes_with = [&](int layers) {
      shape.layers = layers;
      return config::activation_bytes(shape, options);
    };
    const auto i = as_size(mode);
    EXPECT_EQ(bytes_with(33) - bytes_with(32), tokens * per_token[i]) << i;
    auto twice = options;
    twice.activations = DType::fp32;
    if (mode == Mode::full) {
      shape.layers = 1;
      const auto one = config::activation_bytes(shape, twice);
      shape.layers = 2;
      EXPECT_EQ(config::activation_bytes(shape, twice) - one, 2 * tokens * per_token[i]);
    }
  }
}

/// Room that does not grow with the number of layers, counted by hand.
TEST(Activations, SharedRoomIsCountedByHand) {
  config::ModelShape shape;
  shape.width = 64, shape.heads = 4, shape.kv_heads = 2, shape.ffn = 192, shape.vocabulary = 512,
  shape.layers = 2;
  constexpr std::int64_t tokens = 512, d = 64, packed = 128, f = 192, rms = 8;
  const std::int64_t branch_output_residual = 3 * d, gradients = packed + 2 * f;
  const std::int64_t other = tokens * 512 * 4 /* logits */ + tokens * 4 /* final inverse rms */ +
                             3 * tokens * 4 /* tokens, labels, document starts */ +
                             2 * 64 /* loss, valid labels */ + 2 * 256 * 8 * 4 /* rope */ +
                             4096 /* workspace */;
  const std::int64_t kept[] = {5 * d + packed + 3 * f, 3 * d + packed + 2 * f, 2 * d + packed + 2 * f, d};
  const std::int64_t kept_fp32[] = {16 + rms, 16 + rms, rms, 0};
  const std::int64_t live[] = {0, 2 * d + f, 3 * d + f, 4 * d + packed + 3 * f};
  const std::int64_t live_fp32[] = {0, 0, 16, 16 + rms};
  for (const Mode mode : modes) {
    const auto i = as_size(mode);
    const auto options = options_of(2, 256, DType::bf16, mode);
    EXPECT_EQ(bytes_of(shape, options, 4096),
              other + tokens * (2 * (2 * kept[i] + live[i] + branch_output_residual + gradients) +
                                2 * kept_fp32[i] + live_fp32[i]))
        << i;
  }
}

}  // namespace
}  // namespace holdfast::testing
