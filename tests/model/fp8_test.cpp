// Micro-batches with 8-bit products: they point where bf16 micro-batches point, no layout of the work changes
// a bit, and scales come from where they should.
#include <gmock/gmock.h>

#include "src/base/fp8.hpp"
#include "src/model/activations.hpp"
#include "src/model/fp8_scaling.hpp"
#include "tests/model/stand.hpp"

namespace holdfast::testing {
namespace {

using Mode = config::ActivationCheckpointing;
using config::Scaling;
using model::Fp8Scaling;

config::ModelShape shape_of(bool qwen = false) {
  config::ModelShape s;
  s.width = 96;
  s.layers = 3;
  s.heads = 6;
  s.kv_heads = 3;
  s.ffn = 144;
  s.vocabulary = 200;
  s.qkv_bias = s.tied_embeddings = qwen;
  return s;
}
model::Options fp8_options(Scaling scaling, Mode activation_checkpointing = Mode::none) {
  model::Options o = options_of(2, 72, DType::bf16, activation_checkpointing);
  o.products = config::Products::fp8;
  o.scaling = scaling;
  return o;
}

struct Result {
  std::vector<Floats> gradients;
  tensor::ExactSum loss;
  std::vector<std::uint32_t> amaxes;
  bool operator==(const Result&) const = default;
};
/// A second micro-batch, with the scales of the first when they are delayed.
Result second_micro_batch(const config::ModelShape& shape, const model::Options& options, int threads = 1,
                          bool evaluate_between = false, float scale = 5) {
  const TestBatch first = make_batch(shape, 2, 72, false), second = make_batch(shape, 2, 72, true);
  MemoryWeights w = lively(shape, DType::bf16, scale);
  Stand stand(shape, options, threads);
  model::Transformer& t = stand.transformer;
  const bool delayed = options.scaling == Scaling::delayed;
  Fp8Scaling scaling(shape.layers, {});
  Result r;
  r.amaxes.resize(scaling.scales().size());
  t.forward_backward(w, first.batch());
  if (evaluate_between) t.evaluate(w, second.batch());
  if (delayed) {
    t.take_amaxes(r.amaxes);
    scaling.advance(r.amaxes);
    t.set_scales(scaling.scales());
  }
  r.loss = loss_of(t, w, second.batch()).sum;
  if (delayed) t.take_amaxes(r.amaxes);
  r.gradients = w.gradients;
  return r;
}

class Fp8MicroBatch : public ::testing::TestWithParam<Scaling> {};

double cosine(const Floats& a, const Floats& b) {
  double dot = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return dot / std::sqrt(aa * bb);
}

TEST_P(Fp8MicroBatch, GradientsPointWhereThoseOfBf16Point) {
  for (const bool qwen : {false, true}) {
    const auto shape = shape_of(qwen);
    const Result eight = second_micro_batch(shape, fp8_options(GetParam()), 1, false, 1);
    MemoryWeights w = lively(shape, DType::bf16, 1);
    Stand stand(shape, options_of(2, 72, DType::bf16));
    const auto loss = loss_of(stand.transformer, w, make_batch(shape, 2, 72, true).batch());
    EXPECT_NEAR(eight.loss.value() / loss.sum.value(), 1, 5e-3);
    double worst = 1;
    for (std::size_t t = 0; t < w.gradients.size(); ++t) {
      worst = std::fmin(worst, cosine(eight.gradients[t], w.gradients[t]));
      EXPECT_GE(cosine(eight.gradients[t], w.gradients[t]), 0.99) << w.specs[w.stored[t].first_part].name;
      EXPECT_NE(eight.gradients[t], w.gradients[t]) << t;
    }
    std::printf("fp8: loss off by %.1e, worst cosine %.5f\n",
                std::fabs(eight.loss.value() / loss.sum.value() - 1), worst);
  }
}

TEST_P(Fp8MicroBatch, RecomputationThreadsAndEvaluationsChangeNoBit) {
  for (const bool qwen : {false, true}) {
    const auto shape = shape_of(qwen);
    const Result want = second_micro_batch(shape, fp8_options(GetParam()));
    for (const Mode mode : {Mode::selective, Mode::attention, Mode::full})
      EXPECT_EQ(second_micro_batch(shape, fp8_options(GetParam(), mode)), want) << static_cast<int>(mode);
    EXPECT_EQ(second_micro_batch(shape, fp8_options(GetParam()), 1, true), want);
    if (!qwen) {
      EXPECT_EQ(second_micro_batch(shape, fp8_options(GetParam()), 2), want);
    }
  }
}

/// Issue 39: weights were rounded twice in every micro-batch.
TEST_P(Fp8MicroBatch, KeptCopiesOfWeightsChangeNoBit) {
  for (const bool qwen : {false, true}) {
    const auto shape = shape_of(qwen);
    const Result want = second_micro_batch(shape, fp8_options(GetParam()));
    for (const Mode mode : {Mode::none, Mode::selective, Mode::attention, Mode::full})
      for (const bool evaluate_between : {false, true}) {
        auto options = fp8_options(GetParam(), mode);
        options.keeps_copies = true;
        EXPECT_EQ(second_micro_batch(shape, options, 1, evaluate_between), want) << static_cast<int>(mode);
      }
  }
}

TEST_P(Fp8MicroBatch, CopiesOfWeightsAreKeptUntilThereAreNewWeights) {
  const auto shape = shape_of();
  const TestBatch b = make_batch(shape, 2, 72, true);
  MemoryWeights old = lively(shape, DType::bf16, 5), others = lively(shape, DType::bf16, 1);
  auto options = fp8_options(GetParam());
  options.keeps_copies = true;
  Stand stand(shape, options), fresh(shape, fp8_options(GetParam()));
  const auto want = loss_of(fresh.transformer, others, b.batch()).sum;
  loss_of(stand.transformer, old, b.batch());
  EXPECT_NE(loss_of(stand.transformer, others, b.batch()).sum, want);
  stand.transformer.new_weights();
  EXPECT_EQ(loss_of(stand.transformer, others, b.batch()).sum, want);
  EXPECT_EQ(loss_of(stand.transformer, others, b.batch()).sum, want);
  EXPECT_EQ(others.gradients, [&] {
    MemoryWeights again = lively(shape, DType::bf16, 1);
    fresh.transformer.forward_backward(again, b.batch());
    return again.gradients;
  }());
}

TEST_P(Fp8MicroBatch, FrozenWeightsCostNothingAndChangeNoOther) {
  const auto shape = shape_of();
  const TestBatch b = make_batch(shape, 2, 72, true);
  MemoryWeights all = lively(shape, DType::bf16, 5), some = all;
  for (std::size_t t = 0; t < some.stored.size(); t += 2) some.frozen.insert(static_cast<int>(t));
  Stand first(shape, fp8_options(GetParam())), second(shape, fp8_options(GetParam()));
  EXPECT_EQ(loss_of(first.transformer, all, b.batch()).sum, loss_of(second.transformer, some, b.batch()).sum);
  for (std::size_t t = 1; t < some.stored.size(); t += 2) EXPECT_EQ(all.gradients[t], some.gradients[t]) << t;
}

TEST_P(Fp8MicroBatch, ProductsRoundGradientsOnce) {
  const auto shape = shape_of();
  const TestBatch b = make_batch(shape, 2, 72, true);
  MemoryWeights whole = lively(shape, DType::bf16, 5);
  RoundingWeights rounding(whole);
  Stand first(shape, fp8_options(GetParam())), second(shape, fp8_options(GetParam()));
  first.transformer.forward_backward(whole, b.batch());
  second.transformer.forward_backward(rounding, b.batch());
  EXPECT_TRUE(rounded_once(whole, rounding));
}

TEST_P(Fp8MicroBatch, ProductsAddWholeGradients) {
  const auto shape = shape_of();
  const TestBatch b = make_batch(shape, 2, 72, true);
  MemoryWeights w = lively(shape, DType::bf16, 5);
  Stand first(shape, fp8_options(GetParam())), second(shape, fp8_options(GetParam()));
  first.transformer.forward_backward(w, b.batch());
  AddingWeights adding(w);
  second.transformer.forward_backward(adding, b.batch());
  for (std::size_t t = 0; t < w.stored.size(); ++t) {
    Floats want = w.gradients[t];
    if (w.stored[t].linear)
      for (float& x : want) x += x;
    EXPECT_EQ(adding.gradients[t], want) << t;
  }
}

TEST_P(Fp8MicroBatch, MemoryIsWhatThePlanSays) {
  for (const auto& [mode, keeps] : {std::pair{Mode::none, false}, {Mode::full, false}, {Mode::none, true}}) {
    auto shape = shape_of();
    shape.layers = 4;
    auto options = fp8_options(GetParam(), mode);
    options.keeps_copies = keeps;
    Stand stand(shape, options);
    kernels::Attention a;
    a.heads = shape.heads;
    a.kv_heads = shape.kv_heads;
    a.head_size = shape.head_size();
    a.sequence = 72;
    a.qkv.type = DType::bf16;
    a.qkv.rows = 144;
    a.qkv.cols = 12 * 16;
    EXPECT_EQ(config::activation_bytes(shape, options) + (stand.kernels->workspace(a) + 63) / 64 * 64 +
                  2 * 64 /* loss, valid labels */,
              stand.arena.planned_bytes());
    MemoryWeights w = lively(shape, DType::bf16, 5);
    stand.transformer.forward_backward(w, Tokens(2 * 73, 7));
    if (options.scaling == Scaling::delayed) {
      std::vector<std::uint32_t> amaxes(4 * 12);
      stand.transformer.take_amaxes(amaxes);
    }
    EXPECT_EQ(stand.arena.used_bytes(), stand.arena.planned_bytes());
    // 144 tokens; gate and up are the widest, their weight the largest. Twelve roles a block have a scale,
    // its inverse with room for four, a largest value measured and one remembered. Where copies are kept,
    // those of qkv, o, gate and up, and down, twice, and no room for one of a weight.
    const std::int64_t weights = 96 * (192 + 96 + 288 + 144);
    auto plain = options;
    plain.products = config::Products::bf16;
    EXPECT_EQ(config::activation_bytes(shape, options) - config::activation_bytes(shape, plain),
              2 * 144 * 288 + (keeps ? 144 * 144 + 4 * 2 * weights : 288 * 96) +
                  (options.scaling == Scaling::delayed ? 7 : 6) * 4 * 12 * 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Scalings, Fp8MicroBatch, ::testing::Values(Scaling::delayed, Scaling::current),
                         [](const auto& test) {
                           return test.param == Scaling::delayed ? "delayed" : "current";
                         });

TEST(Fp8Amaxes, AreThoseOfTheWeightsAndGrowOverMicroBatches) {
  const auto shape = shape_of();
  MemoryWeights w = lively(shape, DType::bf16, 5);
  Stand stand(shape, fp8_options(Scaling::delayed));
  std::vector<std::uint32_t> first(36), second(36), both(36), none(36);
  const TestBatch a = make_batch(shape, 2, 72, false), b = make_batch(shape, 2, 72, true);
  auto& t = stand.transformer;
  t.forward_backward(w, a.batch()), t.take_amaxes(first);
  t.forward_backward(w, b.batch()), t.take_amaxes(second);
  t.forward_backward(w, b.batch()), t.forward_backward(w, a.batch()), t.take_amaxes(both);
  t.evaluate(w, a.batch()), t.take_amaxes(none);
  for (std::size_t i = 0; i < 36; ++i) {
    EXPECT_GT(first[i], 0u) << i;
    EXPECT_EQ(both[i], std::max(first[i], second[i])) << i;
  }
  EXPECT_NE(first, second);
  EXPECT_THAT(none, ::testing::Each(0u));
  // The stored tensors of a block are its attention norm, qkv, o, mlp norm, gate|up and down.
  for (int layer = 0; layer < 3; ++layer)
    for (const auto& [linear, stored] : {std::pair{0, 1}, {1, 2}, {2, 4}, {3, 5}}) {
      float most = 0;
      for (const float x : w.values[1 + 6 * layer + stored])
        most = std::fmax(most, std::fabs(tensor::to_float(tensor::to_bf16(x))));
      EXPECT_EQ(std::bit_cast<float>(first[12 * layer + 3 * linear + 1]), most);
    }
}

/// A tensor that outgrows its history is cut at the largest value that the scale leaves room for; one in
/// range is not.
TEST(Fp8Delayed, TheScaleDecidesWhatIsCut) {
  const auto shape = shape_of();
  const TestBatch b = make_batch(shape, 2, 72, true);
  auto loss_with = [&](float factor) {
    MemoryWeights w = lively(shape, DType::bf16, 5);
    Stand stand(shape, fp8_options(Scaling::delayed));
    Fp8Scaling scaling(shape.layers, {});
    std::vector<std::uint32_t> amaxes(36);
    loss_of(stand.transformer, w, b.batch());
    stand.transformer.take_amaxes(amaxes);
    scaling.advance(amaxes);
    std::vector<float> scales(scaling.scales().begin(), scaling.scales().end());
    for (float& scale : scales) scale *= factor;
    stand.transformer.set_scales(scales);
    return loss_of(stand.transformer, w, b.batch()).sum;
  };
  // Not in bits: what is small enough to be subnormal is rounded elsewhere.
  EXPECT_NEAR(loss_with(0.5f).value() / loss_with(1).value(), 1, 2e-3);
  EXPECT_GT(std::fabs(loss_with(64).value() / loss_with(1).value() - 1), 1e-2);
}

std::vector<std::uint32_t> amaxes_of(float x, float weight, float d_y) {
  std::vector<std::uint32_t> out;
  for (int i = 0; i < 4; ++i)
    for (const float amax : {x, weight, d_y}) out.push_back(std::bit_cast<std::uint32_t>(amax));
  return out;
}

TEST(Fp8Scales, FollowTheLargestOfTheLastStepsAndForgetTheRest) {
  Fp8Scaling s(1, {Scaling::delayed, 3, 0});
  EXPECT_THAT(s.scales(), ::testing::Each(0.0f));
  s.advance(amaxes_of(448, 1.75f, 57344));
  EXPECT_THAT(std::vector(s.scales().begin(), s.scales().begin() + 3), ::testing::ElementsAre(1, 256, 1));
  s.advance(amaxes_of(1, 2, 57345));
  EXPECT_THAT(std::vector(s.scales().begin(), s.scales().begin() + 3), ::testing::ElementsAre(1, 128, 0.5f));
  s.advance(amaxes_of(1, 0, 1));
  s.advance(amaxes_of(1, 0, 1));  // the first is forgotten
  EXPECT_THAT(std::vector(s.scales().begin(), s.scales().begin() + 3),
              ::testing::ElementsAre(256, 128, 0.5f));
  s.advance(amaxes_of(1, 0, 1));
  EXPECT_THAT(std::vector(s.scales().begin(), s.scales().begin() + 3), ::testing::ElementsAre(256, 0, 32768));
  s.advance(amaxes_of(INFINITY, NAN, 4));  // nothing that one could scale by
  EXPECT_THAT(std::vector(s.scales().begin(), s.scales().begin() + 3), ::testing::ElementsAre(256, 0, 8192));
}

TEST(Fp8Scales, AMarginKeepsPowersOfTwoFree) {
  Fp8Scaling s(1, {Scaling::delayed, 1, 2});
  s.advance(amaxes_of(448, 1.75f, 57344));
  EXPECT_THAT(std::vector(s.scales().begin(), s.scales().begin() + 3),
              ::testing::ElementsAre(0.25f, 64, 0.25f));
}

TEST(Fp8Scales, ComeBackFromTheirTextAndGoOnAsBefore) {
  Fp8Scaling s(2, {Scaling::delayed, 3, 0});
  EXPECT_EQ(s.text(), "");
  std::mt19937 generator(3);
  auto step = [&](Fp8Scaling& a, Fp8Scaling& b) {
    std::vector<std::uint32_t> amaxes;
    for (int i = 0; i < 24; ++i) amaxes.push_back(static_cast<std::uint32_t>(generator()) & 0x7fffffff);
    a.advance(amaxes), b.advance(amaxes);
  };
  auto scales = [](const Fp8Scaling& a) { return std::vector(a.scales().begin(), a.scales().end()); };
  for (int i = 0; i < 5; ++i) {
    Fp8Scaling again(2, {Scaling::delayed, 3, 0});
    again.load(s.text());
    EXPECT_EQ(again.text(), s.text());
    EXPECT_EQ(scales(again), scales(s));
    for (int k = 0; k < 3; ++k) {
      step(s, again);
      EXPECT_EQ(scales(again), scales(s));
    }
  }
  Fp8Scaling shorter(2, {Scaling::delayed, 1, 0}), longer(2, {Scaling::delayed, 9, 0});
  shorter.load(s.text()), longer.load(s.text());
  EXPECT_TRUE(s.text().ends_with(shorter.text().substr(8)));
  EXPECT_EQ(longer.text(), s.text());
  longer.load("");
  EXPECT_THAT(longer.scales(), ::testing::Each(0.0f));
}

TEST(Fp8Scales, RefuseTextThatIsNotTheirs) {
  Fp8Scaling s(1, {}), other(2, {});
  s.advance(amaxes_of(1, 1, 1));
  const std::string good = s.text();
  std::string strange = good;
  strange[12] = 'g';
  for (const std::string& text :
       {good.substr(1), good + "00", good.substr(0, 4), strange, std::string("calm")})
    EXPECT_THROW(s.load(text), Error) << text;
  EXPECT_THROW(other.load(good), Error);
}

}  // namespace
}  // namespace holdfast::testing
