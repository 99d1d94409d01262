#pragma once
// A transformer with all that it needs, small shapes, and batches that have everything in them.
#include <memory>
#include <vector>

#include "src/model/transformer.hpp"
#include "tests/kernels/compare.hpp"
#include "tests/model/memory_weights.hpp"

namespace holdfast::testing {

using reference::Tokens;
using tensor::DType;

struct Stand {
  std::unique_ptr<kernels::Kernels> kernels;
  tensor::InlineStream stream;
  tensor::Arena arena{"activations"};
  model::Transformer transformer;

  Stand(const config::ModelShape& shape, const model::Options& options, int threads = 1)
      : kernels(kernels::make_cpu_kernels(threads)), transformer(shape, options, *kernels, stream, arena) {
    arena.commit();
  }
};

/// Of one micro-batch: the batch, or rows of tokens.
template <class Transformer, class Samples>
model::LossSum loss_of(Transformer&& transformer, model::Weights& weights, const Samples& samples) {
  transformer.take_loss();
  transformer.forward_backward(weights, samples);
  return transformer.take_loss();
}

template <class Transformer, class Samples>
model::LossSum evaluation_of(Transformer&& transformer, model::Weights& weights, const Samples& samples) {
  transformer.take_loss();
  transformer.evaluate(weights, samples);
  return transformer.take_loss();
}

inline model::Options options_of(
    int micro_batch, int sequence, DType activations = DType::fp32,
    config::ActivationCheckpointing activation_checkpointing = config::ActivationCheckpointing::none) {
  model::Options o;
  o.micro_batch = micro_batch;
  o.sequence = sequence;
  o.activations = activations;
  o.activation_checkpointing = activation_checkpointing;
  return o;
}

/// Llama 2 with grouped queries.
inline config::ModelShape micro(bool tied = false) {
  config::ModelShape s;
  s.vocabulary = 11, s.width = 16, s.layers = 2, s.heads = 4, s.kv_heads = 2, s.ffn = 10,
  s.tied_embeddings = tied;
  return s;
}
/// Wavelengths of 6, 63, 628 and 6283 tokens: kept, blended, divided, divided.
inline config::ModelShape micro_llama3() {
  config::ModelShape s = micro();
  s.heads = 2;
  s.kv_heads = 1;
  s.rope_scaling_factor = 4, s.rope_low_frequency = 1, s.rope_high_frequency = 8,
  s.rope_original_sequence = 256;
  return s;
}
/// Biases, tied.
inline config::ModelShape micro_qwen() {
  config::ModelShape s = micro(true);
  s.qkv_bias = true;
  return s;
}

/// Heads that are wider than the model, and normalised.
inline config::ModelShape micro_qwen3() {
  config::ModelShape s = micro();
  s.head_dim = 6;
  s.qk_norm = true;
  return s;
}
/// Heads that are narrower than the model, and biases everywhere.
inline config::ModelShape micro_biased() {
  config::ModelShape s = micro();
  s.head_dim = 2;
  s.qkv_bias = s.o_bias = s.mlp_bias = true;
  return s;
}

/// One of two blocks without rotary positions.
inline config::ModelShape micro_smollm3() {
  config::ModelShape s = micro(true);
  s.nope_every = 2;
  return s;
}

/// Factors of embeddings, scores, residual and logits.
inline config::ModelShape micro_granite() {
  config::ModelShape s = micro(true);
  s.embedding_multiplier = 3;
  s.attention_multiplier = 0.3;
  s.residual_multiplier = 0.7;
  s.logits_scaling = 5;
  s.o_bias = s.qkv_bias = true;
  s.norm_epsilon = 0.1;  // so that it counts
  return s;
}

/// Three of four pairs of a head are rotated, each stretched by a factor of its own.
inline config::ModelShape micro_phi4() {
  config::ModelShape s = micro(true);
  s.head_dim = 8;
  s.rotary_dim = 6;
  s.rope_type = RopeType::longrope;
  s.rope_short_factors = {1, 1.5, 4};
  s.rope_long_factors = {1, 2, 8};
  s.rope_magnitude = 1.2;
  s.rope_original_sequence = s.max_sequence;
  return s;
}

/// Norms behind attention and MLP, and over all heads at once.
inline config::ModelShape micro_olmo2() {
  config::ModelShape s = micro();
  s.qk_norm = s.qk_norm_whole = s.norm_after = true;
  return s;
}

/// The same, with windows of three tokens in all blocks but every second one, which turn otherwise than the
/// stretched others.
inline config::ModelShape micro_olmo3() {
  config::ModelShape s = micro_olmo2();
  s.layers = 3;
  s.window = 3;
  s.full_every = 2;
  s.window_rope_theta = 100;
  s.rope_scaling_factor = 4;
  s.rope_high_frequency = 8;
  s.rope_original_sequence = 256;
  return s;
}

/// Values that let every path carry a gradient that can be seen: large weights, gains off one, biases off
/// zero.
inline MemoryWeights lively(const config::ModelShape& shape, DType type = DType::fp32, float scale = 15) {
  MemoryWeights w(shape, 5, type);
  std::mt19937_64 generator(11);
  std::normal_distribution<float> normal;
  for (std::size_t s = 0; s < w.stored.size(); ++s) {
    const auto kind = w.specs[w.stored[s].first_part].kind;
    for (float& x : w.values[s]) {
      if (kind == config::TensorKind::matrix) x *= scale;
      if (kind == config::TensorKind::gain) x += 0.2f * normal(generator);
      if (kind == config::TensorKind::bias) x = 0.3f * normal(generator);
      if (type == DType::bf16) x = tensor::to_float(tensor::to_bf16(x));
    }
  }
  return w;
}

inline reference::Model reference_of(const config::ModelShape& shape, const MemoryWeights& w) {
  reference::Model m{shape, {}};
  for (std::size_t s = 0; s < w.stored.size(); ++s) {
    std::size_t at = 0;
    for (int p = w.stored[s].first_part; p < w.stored[s].first_part + w.stored[s].parts; ++p) {
      const auto& spec = w.specs[p];
      Array a(spec.rows, spec.cols);
      for (double& x : a.v) x = w.values[s][at++];
      m.weights.push_back(std::move(a));
    }
  }
  return m;
}

/// By logical tensor what lies by stored tensor, for example gradients.
inline std::vector<Floats> by_tensor(const MemoryWeights& w, const std::vector<Floats>& by_stored) {
  std::vector<Floats> out;
  for (std::size_t s = 0; s < w.stored.size(); ++s) {
    auto at = by_stored[s].begin();
    for (int p = w.stored[s].first_part; p < w.stored[s].first_part + w.stored[s].parts; ++p) {
      const auto& specs = w.stored[s].frozen ? w.frozen_specs : w.specs;
      const auto n = specs[p].elements();
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

/// `hard`: two documents a row, masked labels, padding.
inline TestBatch make_batch(const config::ModelShape& shape, int rows, int sequence, bool hard) {
  TestBatch b;
  b.places.sequence = sequence;
  for (int t = 0; t < rows * sequence; ++t) {
    b.inputs.push_back((t * t + 3 * t) % shape.vocabulary);
    b.labels.push_back((5 * t + 1) % shape.vocabulary);
    if (hard && t % 4 == 1) b.labels.back() = -100;
    if (hard) b.places.start.push_back(t % sequence >= sequence / 2 ? sequence / 2 : 0);
  }
  if (hard) {
    b.inputs.back() = -1;
    b.labels.back() = -1;
  }
  return b;
}

}  // namespace holdfast::testing
