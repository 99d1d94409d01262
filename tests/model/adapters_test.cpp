// Low-rank adapters against the model that has them merged into its weights: W' = W + scale B A, hence dB =
// scale dW' A^T and dA = scale B^T dW'.
#include <gtest/gtest.h>

#include "src/base/as_size.hpp"
#include "src/model/activations.hpp"
#include "tests/model/stand.hpp"

namespace holdfast::testing {
namespace {

using Mode = config::ActivationCheckpointing;
using enum config::Projection;

config::ModelShape with_adapters(config::ModelShape shape, std::initializer_list<config::Projection> layers,
                                 double dropout = 0) {
  shape.adapters.rank = 3;
  shape.adapters.scale = 1.7;
  shape.adapters.dropout = dropout;
  for (const auto layer : layers) shape.adapters.on[as_size(layer)] = true;
  return shape;
}
config::ModelShape everywhere(config::ModelShape shape, double dropout = 0) {
  return with_adapters(std::move(shape), {q, k, v, o, gate, up, down}, dropout);
}

/// Weights of the plain model, and those of the model with adapters on the same base.
struct Pair {
  MemoryWeights base, adapted;
  Pair(const config::ModelShape& shape, DType type)
      : base(lively(plain(shape), type)), adapted(shape, 5, type) {
    std::mt19937_64 generator(3);
    std::normal_distribution<float> normal(0, 0.3f);
    std::size_t from = 0;
    for (std::size_t s = 0; s < adapted.stored.size(); ++s) {
      if (adapted.stored[s].frozen) {
        adapted.values[s] = base.values[from++];
        continue;
      }
      for (float& x : adapted.values[s]) {
        x = normal(generator);
        if (type == DType::bf16) x = tensor::to_float(tensor::to_bf16(x));
      }
    }
  }
  static config::ModelShape plain(config::ModelShape shape) { return shape.adapters = {}, shape; }
};

std::string base_name(const std::string& adapter) {
  return adapter.substr(0, adapter.find(".lora_")) + ".weight";
}

/// The reference model with the adapters merged, in fp64.
reference::Model merged(const config::ModelShape& shape, const Pair& w) {
  reference::Model m = reference_of(Pair::plain(shape), w.base);
  const auto adapters = by_tensor(w.adapted, w.adapted.values);
  std::vector<const Floats*> trained;
  std::size_t at = 0;
  for (const auto& t : w.adapted.stored)
    for (int p = 0; p < t.parts; ++p, ++at)
      if (!t.frozen) trained.push_back(&adapters[at]);
  for (std::size_t i = 0; i < w.adapted.specs.size(); ++i) {
    const auto& b = w.adapted.specs[i];
    if (b.kind != config::TensorKind::adapter_b) continue;
    const std::string a_name = b.name.substr(0, b.name.size() - std::string("B.weight").size()) + "A.weight";
    const auto a = as_size(std::ranges::find(w.adapted.specs, a_name, &config::TensorSpec::name) -
                           w.adapted.specs.begin());
    const auto target = as_size(
        std::ranges::find(w.base.specs, base_name(b.name), &config::TensorSpec::name) - w.base.specs.begin());
    Array& weight = m.weights[target];
    const std::int64_t cols = w.adapted.specs[a].cols, rank = b.cols;
    for (std::int64_t r = 0; r < b.rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        for (std::int64_t n = 0; n < rank; ++n)
          weight.v[r * cols + c] +=
              shape.adapters.scale * (*trained[i])[r * rank + n] * (*trained[a])[n * cols + c];
  }
  return m;
}

/// Of the adapters, in the order of tensors_of(), from those of the merged weights.
std::vector<std::vector<double>> expected_gradients(const config::ModelShape& shape, const Pair& w,
                                                    const reference::MicroBatch& micro_batch) {
  const auto by_stored = by_tensor(w.adapted, w.adapted.values);
  std::vector<Floats> values;
  std::size_t at = 0;
  for (const auto& t : w.adapted.stored)
    for (int p = 0; p < t.parts; ++p, ++at)
      if (!t.frozen) values.push_back(by_stored[at]);
  std::vector<std::vector<double>> out;
  for (const auto& spec : w.adapted.specs) {
    const bool is_a = spec.kind == config::TensorKind::adapter_a;
    std::string other = spec.name;
    other.replace(other.find("lora_") + 5, 1, is_a ? "B" : "A");
    const auto o = as_size(std::ranges::find(w.adapted.specs, other, &config::TensorSpec::name) -
                           w.adapted.specs.begin());
    const auto target =
        as_size(std::ranges::find(w.base.specs, base_name(spec.name), &config::TensorSpec::name) -
                w.base.specs.begin());
    const auto& d = micro_batch.gradients[target].v;
    const std::int64_t rows = w.base.specs[target].rows, cols = w.base.specs[target].cols,
                       rank = shape.adapters.rank;
    std::vector<double> g(spec.elements(), 0.0);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        for (std::int64_t n = 0; n < rank; ++n) {
          const double dw = shape.adapters.scale * d[r * cols + c];
          if (is_a)
            g[n * cols + c] += dw * values[o][r * rank + n];
          else
            g[r * rank + n] += dw * values[o][n * cols + c];
        }
    out.push_back(std::move(g));
  }
  return out;
}

std::vector<Floats> adapter_gradients(const MemoryWeights& w) {
  std::vector<Floats> out;
  for (std::size_t s = 0; s < w.stored.size(); ++s) {
    auto at = w.gradients[s].begin();
    for (int p = 0; p < w.stored[s].parts && !w.stored[s].frozen; ++p) {
      const auto n = w.specs[w.stored[s].first_part + p].elements();
      out.emplace_back(at, at + n);
      at += n;
    }
  }
  return out;
}

struct AdapterCase {
  const char* name;
  config::ModelShape shape;
};
void PrintTo(const AdapterCase& c, std::ostream* out) { *out << c.name; }
class Adapters : public ::testing::TestWithParam<AdapterCase> {};

TEST_P(Adapters, AgreeWithTheMergedModel) {
  const auto& shape = GetParam().shape;
  Pair w(shape, DType::fp32);
  const TestBatch b = make_batch(shape, 2, 6, true);
  Stand stand(shape, options_of(2, 6));
  const auto loss = loss_of(stand.transformer, w.adapted, b.batch());
  EXPECT_TRUE(w.adapted.idle());
  const auto want = reference::run_micro_batch(merged(shape, w), b.inputs, b.labels, b.places, true);
  EXPECT_NEAR(loss.sum.value(), want.loss, 2e-6 * want.loss);
  EXPECT_EQ(evaluation_of(stand.transformer, w.adapted, b.batch()).sum, loss.sum);
  const auto got = adapter_gradients(w.adapted);
  const auto gradients = expected_gradients(shape, w, want);
  ASSERT_EQ(got.size(), gradients.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LT(distance(got[i], gradients[i]), 2e-5) << w.adapted.specs[i].name;
}
INSTANTIATE_TEST_SUITE_P(Micro, Adapters,
                         ::testing::Values(AdapterCase{"Everywhere", everywhere(micro())},
                                           AdapterCase{"BiasesTied", everywhere(micro_qwen())},
                                           AdapterCase{"NormalisedHeads", everywhere(micro_qwen3())},
                                           AdapterCase{"BiasesEverywhere", everywhere(micro_biased())},
                                           AdapterCase{"Multipliers", everywhere(micro_granite())},
                                           AdapterCase{"NormsBehind", everywhere(micro_olmo2())},
                                           AdapterCase{"Windows", everywhere(micro_olmo3())},
                                           AdapterCase{"QueriesAndValues", with_adapters(micro(), {q, v})},
                                           AdapterCase{"ValuesUpAndDown",
                                                       with_adapters(micro(), {v, up, down})}),
                         [](const auto& test) { return test.param.name; });

/// Larger than a chunk of tokens, in bf16, with dropout: recomputation changes nothing, and neither does how
/// rows are dealt out.
TEST(AdapterBits, DependOnTheSamplesAlone) {
  config::ModelShape small = micro();
  small.width = 32;
  small.ffn = 40;
  small.vocabulary = 64;
  small.max_sequence = 700;
  for (const DType type : {DType::fp32, DType::bf16})
    for (const double dropout : {0.0, 0.3}) {
      const auto shape = everywhere(small, dropout);
      const TestBatch b = make_batch(shape, 2, 700, false);
      std::vector<std::vector<Floats>> gradients;
      for (const Mode mode : {Mode::none, Mode::selective, Mode::attention, Mode::full}) {
        Pair w(shape, type);
        Stand stand(shape, options_of(2, 700, type, mode), mode == Mode::none ? 1 : 2);
        model::Batch batch = b.batch();
        batch.first_sample = 41;
        loss_of(stand.transformer, w.adapted, batch);
        gradients.push_back(adapter_gradients(w.adapted));
        EXPECT_EQ(stand.arena.used_bytes(), stand.arena.planned_bytes());
        EXPECT_EQ(gradients.back(), gradients.front());
        batch.first_sample = 42;
        loss_of(stand.transformer, w.adapted, batch);
        EXPECT_EQ(adapter_gradients(w.adapted) == gradients.front(), dropout == 0);
      }
      // Evaluations leave nothing out.
      Pair w(shape, type);
      Stand with(shape, options_of(2, 700, type)), without(everywhere(small), options_of(2, 700, type));
      EXPECT_EQ(evaluation_of(with.transformer, w.adapted, b.batch()).sum,
                evaluation_of(without.transformer, w.adapted, b.batch()).sum);
    }
}

/// The gradient is that of the masked model: along a direction, the loss changes as it says.
TEST(AdapterDropout, GradientAgreesWithFiniteDifferences) {
  const auto shape = everywhere(micro(), 0.4);
  Pair w(shape, DType::fp32);
  const TestBatch b = make_batch(shape, 2, 6, true);
  Stand stand(shape, options_of(2, 6));
  loss_of(stand.transformer, w.adapted, b.batch());
  const auto gradients = w.adapted.gradients;
  std::mt19937_64 generator(9);
  std::normal_distribution<float> normal;
  double slope = 0;
  const float h = 1e-3f;
  std::vector<Floats> forth = w.adapted.values, back = w.adapted.values;
  for (std::size_t s = 0; s < forth.size(); ++s) {
    if (w.adapted.stored[s].frozen) continue;
    for (std::size_t i = 0; i < forth[s].size(); ++i) {
      const float d = normal(generator);
      slope += static_cast<double>(d) * static_cast<double>(gradients[s][i]);
      forth[s][i] += h * d;
      back[s][i] -= h * d;
    }
  }
  w.adapted.values = forth;
  const double up_loss = loss_of(stand.transformer, w.adapted, b.batch()).sum.value();
  w.adapted.values = back;
  const double down_loss = loss_of(stand.transformer, w.adapted, b.batch()).sum.value();
  EXPECT_NEAR((up_loss - down_loss) / (2 * static_cast<double>(h)), slope, 2e-2 * std::abs(slope));
}

TEST(AdapterBegin, BIsZeroSoThatTheModelIsUnchanged) {
  const auto shape = everywhere(micro());
  MemoryWeights w(shape, 5);
  MemoryWeights plain(Pair::plain(shape), 5);
  const TestBatch b = make_batch(shape, 2, 6, false);
  Stand stand(shape, options_of(2, 6)), base(Pair::plain(shape), options_of(2, 6));
  EXPECT_EQ(loss_of(stand.transformer, w, b.batch()).sum, loss_of(base.transformer, plain, b.batch()).sum);
  for (std::size_t i = 0; i < w.specs.size(); ++i) {
    std::vector<float> values(w.specs[i].elements());
    model::initial_weights(shape, w.specs[i], 5, 0, values);
    const bool is_a = w.specs[i].kind == config::TensorKind::adapter_a;
    EXPECT_EQ(std::ranges::all_of(values, [](float x) { return x == 0; }), !is_a) << w.specs[i].name;
    const float bound = 1 / std::sqrt(static_cast<float>(w.specs[i].cols));
    for (const float x : values) EXPECT_LE(std::abs(x), bound);
  }
}

}  // namespace
}  // namespace holdfast::testing
