// A micro-batch of small models: losses and gradients against the fp64 reference, that against finite
// differences; the order in which weights are asked for; the same bits for every number of threads.
#include "src/model/transformer.hpp"
#include "src/base/as_size.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <numbers>

#include "src/base/error.hpp"
#include "tests/model/stand.hpp"

namespace {
std::atomic<long> allocations = 0;
}
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort asks so.
__attribute__((noinline)) void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace holdfast::testing {
namespace {

/// A family of models and whether the batch is hard.
struct MicroBatchCase {
  const char* name;
  config::ModelShape shape;
  bool hard;
};
void PrintTo(const MicroBatchCase& c, std::ostream* out) { *out << c.name; }

class MicroBatch : public ::testing::TestWithParam<MicroBatchCase> {};

TEST_P(MicroBatch, GradientsAgreeWithTheReferenceAndItsFiniteDifferences) {
  const auto& [name, shape, hard] = GetParam();
  MemoryWeights w = lively(shape);
  const TestBatch b = make_batch(shape, 2, 6, hard);
  Stand stand(shape, options_of(2, 6));
  const auto loss = loss_of(stand.transformer, w, b.batch());
  EXPECT_TRUE(w.idle());

  const reference::Model m = reference_of(shape, w);
  const auto want = reference::run_micro_batch(m, b.inputs, b.labels, b.places, true);
  EXPECT_EQ(loss.valid, want.valid);
  EXPECT_NEAR(loss.sum.value(), want.loss, 1e-6 * want.loss);
  EXPECT_EQ(evaluation_of(stand.transformer, w, b.batch()).sum, loss.sum);

  const auto got = by_tensor(w, w.gradients);
  for (std::size_t k = 0; k < got.size(); ++k) {
    EXPECT_LT(distance(got[k], want.gradients[k].v), 1e-5) << w.specs[k].name;
    std::vector<double> differences, tape;
    const double h = 1e-5;
    for (std::size_t i = k % 3; i < got[k].size();
         i += 3) {  // every third element: all of them take half a minute
      auto loss_at = [&](double x) {
        reference::Model moved = m;
        moved.weights[k].v[i] = x;
        return reference::run_micro_batch(moved, b.inputs, b.labels, b.places, false).loss;
      };
      const double at = m.weights[k].v[i];
      differences.push_back((loss_at(at + h) - loss_at(at - h)) / (2 * h));
      tape.push_back(want.gradients[k].v[i]);
    }
    EXPECT_LT(distance(tape, differences), 1e-6) << w.specs[k].name;
  }
}
INSTANTIATE_TEST_SUITE_P(Micro, MicroBatch,
                         ::testing::Values(MicroBatchCase{"UntiedPlain", micro(), false},
                                           MicroBatchCase{"UntiedDocumentsAndMasks", micro(), true},
                                           MicroBatchCase{"TiedPlain", micro(true), false},
                                           MicroBatchCase{"TiedDocumentsAndMasks", micro(true), true},
                                           MicroBatchCase{"StretchedRotations", micro_llama3(), false},
                                           MicroBatchCase{"BiasesTied", micro_qwen(), true},
                                           MicroBatchCase{"NormalisedHeads", micro_qwen3(), true},
                                           MicroBatchCase{"BiasesEverywhere", micro_biased(), true},
                                           MicroBatchCase{"ABlockWithoutPositions", micro_smollm3(), true},
                                           MicroBatchCase{"Multipliers", micro_granite(), true},
                                           MicroBatchCase{"PartsOfHeadsRotated", micro_phi4(), true},
                                           MicroBatchCase{"NormsBehind", micro_olmo2(), true},
                                           MicroBatchCase{"WindowsOfBlocks", micro_olmo3(), false},
                                           MicroBatchCase{"WindowsAndDocuments", micro_olmo3(), true}),
                         [](const auto& test) { return test.param.name; });

TEST(Reference, LeavesRotationsKeptBlendedAndStretched) {
  const auto s = micro_llama3();
  const reference::Stretch stretch{s.rope_scaling_factor,
                                   s.rope_low_frequency,
                                   s.rope_high_frequency,
                                   static_cast<double>(s.rope_original_sequence),
                                   1,
                                   {}};
  const double want[] = {1, 0.1 * (0.25 + 0.75 * (256 * 0.1 / (2 * std::numbers::pi) - 1) / 7), 0.01 / 4,
                         0.001 / 4};
  for (int j = 0; j < 4; ++j)
    EXPECT_NEAR(reference::rope_frequency(j, 4, 1e4, stretch) / want[j], 1, 1e-12) << j;
}

TEST(Transformer, OddShapesAgreeWithTheReference) {
  struct Odd {
    int rows, sequence, width, layers, heads, kv_heads, ffn, vocabulary;
  };
  for (const Odd& o : {Odd{1, 1, 8, 1, 1, 1, 3, 5}, Odd{3, 67, 42, 1, 3, 1, 29, 101},
                       Odd{1, 300, 20, 3, 5, 5, 33, 67}, Odd{2, 3, 12, 0, 2, 1, 4, 9}}) {
    config::ModelShape shape;
    shape.width = o.width, shape.layers = o.layers, shape.heads = o.heads, shape.kv_heads = o.kv_heads,
    shape.ffn = o.ffn;
    shape.vocabulary = o.vocabulary;
    MemoryWeights w = lively(shape);
    const TestBatch b = make_batch(shape, o.rows, o.sequence, o.sequence > 1);
    Stand stand(shape, options_of(o.rows, o.sequence));
    const auto loss = loss_of(stand.transformer, w, b.batch());
    const auto want = reference::run_micro_batch(reference_of(shape, w), b.inputs, b.labels, b.places, true);
    EXPECT_EQ(loss.valid, want.valid);
    EXPECT_NEAR(loss.sum.value(), want.loss, 1e-5 * want.loss);
    const auto got = by_tensor(w, w.gradients);
    double largest = 0;  // some gradients are zero, but for rounding: queries and keys of a single token
    for (const auto& g : want.gradients)
      for (const double x : g.v) largest = std::fmax(largest, std::fabs(x));
    for (std::size_t k = 0; k < got.size(); ++k)
      EXPECT_LT(distance(got[k], want.gradients[k].v, 1e-3 * largest), 2e-5)
          << w.specs[k].name << " " << o.width;
  }
}

TEST(Transformer, TokensWithTheirSuccessorsAsLabels) {
  const auto shape = micro(false);
  MemoryWeights w(shape, 1);
  Stand stand(shape, options_of(2, 3));
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const Tokens inputs = {1, 2, 3, 5, 6, 7}, labels = {2, 3, 4, 6, 7, 8};
  const auto a = loss_of(stand.transformer, w, tokens);
  EXPECT_EQ(a.valid, 6);
  EXPECT_EQ(a.sum, loss_of(stand.transformer, w, model::Batch{inputs, labels, {}}).sum);
  EXPECT_EQ(a.sum, evaluation_of(stand.transformer, w, tokens).sum);
  EXPECT_NEAR(a.mean(), std::log(11.0), 0.05);
}

TEST(Transformer, LossesOfSourcesAddUpToTheLossBitForBit) {
  const auto shape = micro(false);
  MemoryWeights w = lively(shape);
  auto options = options_of(2, 600);  // a row ends inside a chunk of the head
  const TestBatch made = make_batch(shape, 2, 600, true);
  Stand together(shape, options);
  options.sources = 3;
  Stand apart(shape, options);
  const auto all = loss_of(together.transformer, w, made.batch());
  const auto gradients = w.gradients;
  std::vector<model::LossSum> losses(3);
  const auto by_source = [&](std::vector<std::int32_t> sources) {
    model::Batch batch = made.batch();
    batch.sources = sources;
    apart.transformer.forward_backward(w, batch);
    apart.transformer.take_losses(losses);
    EXPECT_EQ(w.gradients, gradients);
  };
  by_source({2, 0});
  EXPECT_EQ(losses[1].valid, 0);
  EXPECT_GT(losses[0].valid, 0);
  const model::LossSum second = losses[0], first = losses[2];
  model::LossSum sum = first;
  sum.add(second);
  EXPECT_EQ(sum.sum, all.sum);
  EXPECT_EQ(sum.valid, all.valid);
  by_source({0, 1});
  EXPECT_EQ(losses[0].sum, first.sum);
  EXPECT_EQ(losses[1].sum, second.sum);
  by_source({1, 1});
  EXPECT_EQ(losses[1].sum, all.sum);
  EXPECT_EQ(loss_of(apart.transformer, w, made.batch()).sum, all.sum) << "without sources: of the first";
}

TEST(Transformer, AsksForUnitsInTheWrittenOrder) {
  for (const auto& [tied, mode] : {std::pair(false, config::ActivationCheckpointing::none),
                                   std::pair(true, config::ActivationCheckpointing::none),
                                   std::pair(false, config::ActivationCheckpointing::selective),
                                   std::pair(true, config::ActivationCheckpointing::full)}) {
    const auto shape = micro(tied);
    MemoryWeights w(shape, 1);
    Stand stand(shape, options_of(1, 4, DType::fp32, mode));
    std::string progress;
    stand.transformer.on_progress([&](model::Direction direction, int unit) {
      progress += direction == model::Direction::forward ? "f" : "b";
      progress += std::to_string(unit);
    });
    const Tokens tokens = {1, 2, 3, 4, 5};
    stand.transformer.forward_backward(w, tokens);
    EXPECT_EQ(w.calls, tied ? "a0r0a1r1a2r2a0a3g3r3r0a2g2r2a1g1r1g0" : "a0r0a1r1a2r2a3g3r3a2g2r2a1g1r1g0");
    EXPECT_EQ(progress, "f0f1f2f3b3b2b1b0");
    w.calls.clear();
    evaluation_of(stand.transformer, w, tokens);
    EXPECT_EQ(w.calls, tied ? "a0r0a1r1a2r2a0a3r3r0" : "a0r0a1r1a2r2a3r3");
    EXPECT_TRUE(w.idle());
  }
}

TEST(Transformer, AllocatesNothingAfterItsFirstMicroBatch) {
  const auto shape = micro_qwen();
  const Tokens tokens(16, 3);
  const TestBatch b = make_batch(shape, 2, 7, true);
  for (const DType type : {DType::fp32, DType::bf16})
    for (const auto mode : {config::ActivationCheckpointing::none, config::ActivationCheckpointing::full}) {
      MemoryWeights w(shape, 1, type);
      PlainWeights plain(w);  // MemoryWeights keeps a diary
      Stand stand(shape, options_of(2, 7, type, mode));
      stand.transformer.forward_backward(plain, tokens);
      EXPECT_EQ(stand.arena.used_bytes(), stand.arena.planned_bytes());
      const long before = allocations;
      stand.transformer.forward_backward(plain, b.batch());
      stand.transformer.forward_backward(plain, tokens);
      evaluation_of(stand.transformer, plain, tokens);
      EXPECT_EQ(allocations, before) << name_of(type);
    }
}

/// Each stored tensor frozen alone, and all of them: the others' gradients keep their bits, the order of
/// calls its form.
TEST(Transformer, AFrozenTensorChangesNoOtherGradient) {
  for (const bool tied : {false, true}) {
    config::ModelShape shape = micro(tied);
    shape.qkv_bias = true;
    const TestBatch b = make_batch(shape, 2, 7, true);
    MemoryWeights free = lively(shape);
    Stand stand(shape, options_of(2, 7, DType::fp32, config::ActivationCheckpointing::selective));
    const auto loss = loss_of(stand.transformer, free, b.batch()).sum;
    const int count = static_cast<int>(free.stored.size());
    for (int which = 0; which <= count; ++which) {
      MemoryWeights w = lively(shape);
      for (int t = 0; t < count; ++t)
        if (t == which || which == count) w.frozen.insert(t);
      EXPECT_EQ(loss_of(stand.transformer, w, b.batch()).sum, loss);
      EXPECT_EQ(w.calls, free.calls);
      for (int t = 0; t < count; ++t) {
        const auto i = as_size(t);
        if (w.frozen.contains(t)) continue;
        EXPECT_EQ(w.gradients[i], free.gradients[i]) << which << " " << t;
      }
    }
  }
}

/// A gradient that a product adds is the whole gradient and one addition, bit for bit.
TEST(Transformer, ProductsAddWholeGradients) {
  const auto shape = micro_qwen();
  const TestBatch first = make_batch(shape, 2, 7, false), second = make_batch(shape, 2, 7, true);
  for (const DType type : {DType::fp32, DType::bf16}) {
    MemoryWeights w = lively(shape, type);
    Stand stand(shape, options_of(2, 7, type));
    stand.transformer.forward_backward(w, first.batch());
    AddingWeights adding(w);
    const std::vector<Floats> before = w.gradients;
    stand.transformer.forward_backward(w, second.batch());
    stand.transformer.forward_backward(adding, second.batch());
    int added = 0;
    for (std::size_t t = 0; t < before.size(); ++t) {
      Floats want = w.gradients[t];
      if (w.stored[t].linear)
        for (std::size_t i = 0; i < want.size(); ++i) want[i] = before[t][i] + want[i];
      added += w.stored[t].linear ? 1 : 0;
      EXPECT_EQ(adding.gradients[t], want) << t;
    }
    EXPECT_EQ(added, 4 * shape.layers);
  }
}

TEST(Transformer, ProductsRoundGradientsOnce) {
  const auto shape = micro_qwen();
  const TestBatch b = make_batch(shape, 2, 7, true);
  MemoryWeights whole = lively(shape, DType::bf16);
  RoundingWeights rounding(whole);
  Stand stand(shape, options_of(2, 7, DType::bf16));
  stand.transformer.forward_backward(whole, b.batch());
  stand.transformer.forward_backward(rounding, b.batch());
  EXPECT_TRUE(rounded_once(whole, rounding));
}

TEST(Transformer, NamesATokenOutsideTheVocabulary) {
  const auto shape = micro(false);
  MemoryWeights w(shape, 1);
  Stand stand(shape, options_of(1, 3));
  try {
    stand.transformer.forward_backward(w, Tokens{1, 2, 11, 3});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::usage);
    EXPECT_EQ(e.problem(), "token 11 is outside the model's vocabulary of 11");
  }
  EXPECT_THROW(stand.transformer.forward_backward(w, Tokens{1, 2}), std::logic_error);
}

TEST(Transformer, BitsDoNotDependOnThreads) {
  config::ModelShape shape;  // tiny, with sizes that give several tasks to every kernel
  shape.width = 96;
  shape.heads = 6;
  shape.kv_heads = 3;
  shape.ffn = 331;
  shape.vocabulary = 700;
  shape.head_dim = 24;
  shape.qk_norm = true;
  std::vector<std::vector<Floats>> results;
  std::vector<tensor::ExactSum> losses;
  for (const int threads : {1, 2, 3}) {
    MemoryWeights w(shape, 2);
    Stand stand(shape, options_of(2, 200), threads);
    losses.push_back(loss_of(stand.transformer, w, make_batch(shape, 2, 200, true).batch()).sum);
    results.push_back(w.gradients);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace holdfast::testing
