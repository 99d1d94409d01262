// The first 20 steps of the tiny model: product kernels against an independent fp64 training loop.
#include <gtest/gtest.h>

#include "src/model/transformer.hpp"
#include "tests/kernels/compare.hpp"
#include "tests/kernels/plain_sum.hpp"
#include "tests/model/memory_weights.hpp"

namespace holdfast::testing {
namespace {

using reference::Tokens;

constexpr int rows = 2, sequence = 32, micro_batches_per_step = 2;

/// Text with something to learn: a noisy successor rule.
Tokens text_of(int step, int micro_batch, int vocabulary) {
  std::mt19937_64 generator(static_cast<std::uint64_t>(step * 100 + micro_batch + 1));
  Tokens tokens;
  for (int r = 0; r < rows; ++r) {
    int token = static_cast<int>(generator() % static_cast<unsigned>(vocabulary));
    for (int i = 0; i <= sequence; ++i) {
      tokens.push_back(token);
      token = generator() % 8 == 0 ? static_cast<int>(generator() % 64) : (token * 5 + 17) % 64;
    }
  }
  return tokens;
}

/// One optimizer step of the product on whole tensors.
double product_step(model::Transformer& transformer, kernels::Kernels& k, tensor::Stream& stream,
                    MemoryWeights& w, std::vector<Floats>& m, std::vector<Floats>& v,
                    const reference::Optimizer& o, int step, int vocabulary) {
  std::vector<Floats> sums(w.values.size());
  for (int micro_batch = 0; micro_batch < micro_batches_per_step; ++micro_batch) {
    transformer.forward_backward(w, text_of(step, micro_batch, vocabulary));
    for (std::size_t s = 0; s < sums.size(); ++s) {
      sums[s].resize(w.gradients[s].size());
      const void* gradient = w.gradients[s].data();
      plain_sum(k, stream, sums[s].data(), std::span(&gradient, 1), tensor::DType::fp32,
                static_cast<std::int64_t>(sums[s].size()), micro_batch == 0);
    }
  }
  const model::LossSum loss = transformer.take_loss();
  tensor::ExactSum squares;
  for (const Floats& sum : sums)
    k.sum_squares(stream, sum.data(), static_cast<std::int64_t>(sum.size()), &squares);
  const auto valid = static_cast<double>(loss.valid);
  const double norm = std::sqrt(squares.value()) / valid, clip = norm > o.clip_norm ? o.clip_norm / norm : 1;
  auto scalars_with = [&](double weight_decay) {
    return kernels::step_scalars(reference::learning_rate(o, step), weight_decay, o.beta1, o.beta2, o.epsilon,
                                 step + 1, clip / valid);
  };
  const auto decaying = scalars_with(o.weight_decay), plain = scalars_with(0);
  for (std::size_t s = 0; s < sums.size(); ++s) {
    const auto kind = w.specs[w.stored[s].first_part].kind;
    kernels::AdamW a;
    a.parameter = a.new_parameter = w.values[s].data();
    a.gradient = sums[s].data();
    a.m = a.new_m = m[s].data();
    a.v = a.new_v = v[s].data();
    a.count = static_cast<std::int64_t>(sums[s].size());
    k.adamw(stream, a, kind == config::TensorKind::matrix ? decaying : plain);
  }
  return loss.mean();
}

TEST(Training, TwentyStepsOfTheTinyModelAgreeWithFp64) {
  const config::ModelShape shape;  // tiny
  reference::Optimizer o;
  o.lr = 3e-3;
  o.min_lr = 3e-4;
  o.warmup = 5;
  o.steps = 20;
  MemoryWeights w(shape, 1);
  reference::Model start{shape, {}};
  std::vector<Floats> m, v;
  for (std::size_t s = 0; s < w.stored.size(); ++s) {
    m.emplace_back(w.values[s].size()), v.emplace_back(w.values[s].size());
    std::size_t at = 0;
    for (int p = w.stored[s].first_part; p < w.stored[s].first_part + w.stored[s].parts; ++p) {
      const auto& spec = w.specs[p];
      start.weights.emplace_back(spec.rows, spec.cols);
      for (double& x : start.weights.back().v) x = w.values[s][at++];
    }
  }
  reference::Trainer trainer(start, o);
  const auto k = kernels::make_cpu_kernels(1);
  tensor::InlineStream stream;
  tensor::Arena arena;
  model::Options options;
  options.micro_batch = rows;
  options.sequence = sequence;
  model::Transformer transformer(shape, options, *k, stream, arena);
  arena.commit();

  double first = 0, last = 0, worst = 0;
  bool clipped = false;
  for (int step = 0; step < o.steps; ++step) {
    std::vector<reference::MicroBatch> micro_batches;
    for (int micro_batch = 0; micro_batch < micro_batches_per_step; ++micro_batch) {
      const Tokens all = text_of(step, micro_batch, shape.vocabulary);
      Tokens inputs, labels;
      for (int r = 0; r < rows; ++r)
        for (int i = 0; i < sequence; ++i) {
          inputs.push_back(all[r * (sequence + 1) + i]);
          labels.push_back(all[r * (sequence + 1) + i + 1]);
        }
      micro_batches.push_back(
          reference::run_micro_batch(trainer.model(), inputs, labels, {sequence, {}}, true));
    }
    const double want = trainer.step(micro_batches);
    const double got = product_step(transformer, *k, stream, w, m, v, o, step, shape.vocabulary);
    EXPECT_NEAR(got / want, 1.0, 1e-5) << "step " << step;
    worst = std::fmax(worst, std::fabs(got / want - 1));
    clipped = clipped || trainer.norm() > o.clip_norm;
    (step == 0 ? first : last) = got;
  }
  EXPECT_LT(last, first - 0.5) << "it learns";
  EXPECT_TRUE(clipped) << "clipping is part of what is compared";
  RecordProperty("worst_relative_difference", std::to_string(worst));
  std::printf("loss %.4f -> %.4f, largest relative difference %.2e\n", first, last, worst);
}

}  // namespace
}  // namespace holdfast::testing
