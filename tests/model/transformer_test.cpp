// A leaf of small models: losses and gradients against the fp64 reference, that against finite differences;
// the order in which weights are asked for; the same bits for every number of threads.
#include "src/model/transformer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "src/base/error.hpp"
#include "tests/kernels/compare.hpp"
#include "tests/model/memory_weights.hpp"

namespace {
std::atomic<long> allocations = 0;
}
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace holdfast::testing {
namespace {

using reference::Tokens;

config::ModelShape micro(bool tied) {
  config::ModelShape s;
  s.vocabulary = 11, s.width = 16, s.layers = 2, s.heads = 4, s.kv_heads = 2, s.ffn = 10,
  s.tied_embeddings = tied;
  return s;
}

/// A transformer with all that it needs.
struct Stand {
  std::unique_ptr<kernels::Kernels> kernels;
  tensor::InlineStream stream;
  tensor::Arena arena{"activations"};
  model::Transformer transformer;

  Stand(const config::ModelShape& shape, int micro_batch, int sequence, int threads = 2)
      : kernels(kernels::make_cpu_kernels(threads)),
        transformer(shape, micro_batch, sequence, *kernels, stream, arena) {
    arena.commit();
  }
};

reference::Model reference_of(const config::ModelShape& shape, const MemoryWeights& w) {
  reference::Model m{shape, {}};
  for (std::size_t s = 0; s < w.stored.size(); ++s) {
    std::size_t at = 0;
    for (int p = w.stored[s].first_part; p < w.stored[s].first_part + w.stored[s].parts; ++p) {
      const auto& spec = w.specs[static_cast<std::size_t>(p)];
      Array a(spec.rows, spec.cols);
      for (double& x : a.v) x = w.values[s][at++];
      m.weights.push_back(std::move(a));
    }
  }
  return m;
}

/// Gradients by logical tensor, as the reference has them.
std::vector<Floats> gradients_of(const MemoryWeights& w) {
  std::vector<Floats> out;
  for (std::size_t s = 0; s < w.stored.size(); ++s) {
    auto at = w.gradients[s].begin();
    for (int p = w.stored[s].first_part; p < w.stored[s].first_part + w.stored[s].parts; ++p) {
      const auto n = w.specs[static_cast<std::size_t>(p)].elements();
      out.emplace_back(at, at + n);
      at += n;
    }
  }
  return out;
}

struct TestBatch {
  Tokens inputs, labels;
  reference::Places places;
  model::Batch batch() const { return {inputs, labels, places.start}; }
};

TestBatch make_batch(const config::ModelShape& shape, int rows, int sequence, bool hard) {
  TestBatch b;
  b.places.sequence = sequence;
  for (int t = 0; t < rows * sequence; ++t) {
    b.inputs.push_back((t * t + 3 * t) % shape.vocabulary);
    b.labels.push_back((5 * t + 1) % shape.vocabulary);
    if (hard && t % 4 == 1) b.labels.back() = -100;
    if (hard) b.places.start.push_back(t % sequence >= sequence / 2 ? sequence / 2 : 0);
  }
  if (hard) b.inputs.back() = -1, b.labels.back() = -1;  // padding
  return b;
}

/// Larger weights than the initial ones, so that every path carries a gradient that can be seen.
MemoryWeights lively(const config::ModelShape& shape) {
  MemoryWeights w(shape, 5);
  for (auto& tensor : w.values)
    for (float& x : tensor) x = x == 1.0f ? 1.0f : x * 15;
  return w;
}

class Leaf : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(Leaf, GradientsAgreeWithTheReferenceAndItsFiniteDifferences) {
  const auto [tied, hard] = GetParam();
  const auto shape = micro(tied);
  MemoryWeights w = lively(shape);
  const TestBatch b = make_batch(shape, 2, 6, hard);
  Stand stand(shape, 2, 6);
  const auto loss = stand.transformer.leaf(w, b.batch());
  EXPECT_TRUE(w.idle());

  const reference::Model m = reference_of(shape, w);
  const auto want = reference::run_leaf(m, b.inputs, b.labels, b.places, true);
  EXPECT_EQ(loss.valid, want.valid);
  EXPECT_NEAR(loss.sum.value(), want.loss, 1e-6 * want.loss);
  EXPECT_EQ(stand.transformer.evaluate(w, b.batch()).sum, loss.sum);

  const auto got = gradients_of(w);
  for (std::size_t k = 0; k < got.size(); ++k) {
    EXPECT_LT(distance(got[k], want.gradients[k].v), 1e-5) << w.specs[k].name;
    std::vector<double> differences, tape;
    const double h = 1e-5;
    for (std::size_t i = k % 3; i < got[k].size();
         i += 3) {  // every third element: all of them take half a minute
      auto loss_at = [&](double x) {
        reference::Model moved = m;
        moved.weights[k].v[i] = x;
        return reference::run_leaf(moved, b.inputs, b.labels, b.places, false).loss;
      };
      const double at = m.weights[k].v[i];
      differences.push_back((loss_at(at + h) - loss_at(at - h)) / (2 * h));
      tape.push_back(want.gradients[k].v[i]);
    }
    EXPECT_LT(distance(tape, differences), 1e-6) << w.specs[k].name;
  }
}
INSTANTIATE_TEST_SUITE_P(Micro, Leaf, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "Tied" : "Untied") +
                                  (std::get<1>(test.param) ? "DocumentsAndMasks" : "Plain");
                         });

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
    Stand stand(shape, o.rows, o.sequence);
    const auto loss = stand.transformer.leaf(w, b.batch());
    const auto want = reference::run_leaf(reference_of(shape, w), b.inputs, b.labels, b.places, true);
    EXPECT_EQ(loss.valid, want.valid);
    EXPECT_NEAR(loss.sum.value(), want.loss, 1e-5 * want.loss);
    const auto got = gradients_of(w);
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
  Stand stand(shape, 2, 3);
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const Tokens inputs = {1, 2, 3, 5, 6, 7}, labels = {2, 3, 4, 6, 7, 8};
  const auto a = stand.transformer.leaf(w, tokens);
  EXPECT_EQ(a.valid, 6);
  EXPECT_EQ(a.sum, stand.transformer.leaf(w, {inputs, labels, {}}).sum);
  EXPECT_EQ(a.sum, stand.transformer.evaluate(w, tokens).sum);
  EXPECT_NEAR(a.mean(), std::log(11.0), 0.05);
}

TEST(Transformer, AsksForUnitsInTheWrittenOrder) {
  for (const bool tied : {false, true}) {
    const auto shape = micro(tied);
    MemoryWeights w(shape, 1);
    Stand stand(shape, 1, 4);
    std::string progress;
    stand.transformer.on_progress([&](model::Phase phase, int unit) {
      progress += phase == model::Phase::forward ? "f" : "b";
      progress += std::to_string(unit);
    });
    const Tokens tokens = {1, 2, 3, 4, 5};
    stand.transformer.leaf(w, tokens);
    EXPECT_EQ(w.calls, tied ? "a0r0a1r1a2r2a0a3g3r3r0a2g2r2a1g1r1g0" : "a0r0a1r1a2r2a3g3r3a2g2r2a1g1r1g0");
    EXPECT_EQ(progress, "f0f1f2f3b3b2b1b0");
    w.calls.clear();
    stand.transformer.evaluate(w, tokens);
    EXPECT_EQ(w.calls, tied ? "a0r0a1r1a2r2a0a3r3r0" : "a0r0a1r1a2r2a3r3");
    EXPECT_TRUE(w.idle());
  }
}

TEST(Transformer, AllocatesNothingAfterItsArenaIsCommitted) {
  const auto shape = micro(false);
  MemoryWeights w(shape, 1);
  Stand stand(shape, 2, 7, 1);
  const Tokens tokens(16, 3);
  auto leaf = [&] { return stand.transformer.leaf(w, tokens).valid; };
  leaf();
  EXPECT_EQ(stand.arena.used_bytes(), stand.arena.planned_bytes());
  const TestBatch b = make_batch(shape, 2, 7, true);
  struct Plain : model::Weights {  // MemoryWeights keeps a diary
    explicit Plain(MemoryWeights& m) : memory(m) {}
    void acquire(int) override {}
    const float* weight(int t) override { return memory.values[static_cast<std::size_t>(t)].data(); }
    void release(int) override {}
    float* gradient(int t) override { return memory.gradients[static_cast<std::size_t>(t)].data(); }
    void reduce(int) override {}
    MemoryWeights& memory;
  } plain(w);
  const long before = allocations;
  stand.transformer.leaf(plain, b.batch());
  stand.transformer.leaf(plain, tokens);
  EXPECT_EQ(allocations, before);
}

TEST(Transformer, NamesATokenOutsideTheVocabulary) {
  const auto shape = micro(false);
  MemoryWeights w(shape, 1);
  Stand stand(shape, 1, 3);
  try {
    stand.transformer.leaf(w, Tokens{1, 2, 11, 3});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::usage);
    EXPECT_EQ(e.problem(), "token 11 is outside the model's vocabulary of 11");
  }
  EXPECT_THROW(stand.transformer.leaf(w, Tokens{1, 2}), std::logic_error);
}

TEST(Transformer, BitsDoNotDependOnThreads) {
  config::ModelShape shape;  // tiny, with sizes that give several tasks to every kernel
  shape.width = 96, shape.heads = 6, shape.kv_heads = 3, shape.ffn = 331, shape.vocabulary = 700;
  std::vector<std::vector<Floats>> results;
  std::vector<tensor::ExactSum> losses;
  for (const int threads : {1, 2, 3}) {
    MemoryWeights w(shape, 2);
    Stand stand(shape, 2, 200, threads);
    losses.push_back(stand.transformer.leaf(w, make_batch(shape, 2, 200, true).batch()).sum);
    results.push_back(w.gradients);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace holdfast::testing
