#include "src/model/transformer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "src/base/error.hpp"
#include "src/model/activations.hpp"
#include "src/model/block.hpp"
#include "src/model/layers.hpp"
#include "src/model/roles.hpp"

namespace holdfast::model {

namespace {

/// Bytes of scratch that attention needs at this shape.
std::int64_t attention_workspace(const Layers& layers) {
  kernels::Attention a = layers.attention();
  const int packed = (a.heads + 2 * a.kv_heads) * a.head_size;
  a.qkv.type = layers.options.activations, a.qkv.rows = layers.options.tokens(), a.qkv.cols = packed;
  return layers.kernels.workspace(a);
}

}  // namespace

struct Transformer::State {
  const config::ModelShape shape;
  const Options options;
  const std::int64_t tokens;
  const Roles roles;
  Layers layers;
  Activations a;
  std::function<void(Phase, int)> progress;
  bool rope_ready = false;
  const std::int32_t* inputs = nullptr;
  const std::int32_t* labels = nullptr;

  State(const config::ModelShape& s, const Options& o, kernels::Kernels& kernels, tensor::Stream& stream,
        tensor::Arena& arena)
      : shape(s),
        options(o),
        tokens(o.tokens()),
        roles(s),
        layers{kernels, stream, shape, options, nullptr, {}},
        a(s, o, attention_workspace(layers), arena) {
    expects(s.heads % s.kv_heads == 0 && s.width % s.heads == 0 && s.head_size() % 2 == 0,
            "the model's shape was checked");
  }

  Weights& weights() { return *layers.weights; }
  kernels::Kernels& kernels() { return layers.kernels; }
  void report(Phase phase, int unit) {
    if (progress) progress(phase, unit);
  }

  void take(const Batch& batch);
  void take(std::span<const std::int32_t> all);
  void prepare_rope();
  void forward();
  LeafLoss head(bool gradients);
  void backward();
  LeafLoss run(Weights& w, bool gradients);
};

/// Checks the batch and points at it.
void Transformer::State::take(const Batch& batch) {
  const auto n = static_cast<std::size_t>(tokens);
  expects(batch.inputs.size() == n && batch.labels.size() == n,
          "a batch holds micro_batch * sequence inputs and labels");
  expects(batch.document_start.empty() || batch.document_start.size() == n,
          "document starts are given for every token or none");
  for (const auto part : {batch.inputs, batch.labels})
    for (std::size_t i = 0; i < n; ++i)
      if (part[i] >= shape.vocabulary)
        throw Error(
            Exit::usage,
            fmt::format("token {} is outside the model's vocabulary of {}", part[i], shape.vocabulary),
            fmt::format("place {} of a micro-batch", i), "prepare the data with this model's tokenizer?");
  for (std::size_t i = 0; i < batch.document_start.size(); ++i)
    expects(batch.document_start[i] >= 0 &&
                batch.document_start[i] <= static_cast<std::int64_t>(i) % options.sequence,
            "a document starts in its row, at or before its tokens");
  inputs = batch.inputs.data(), labels = batch.labels.data();
  layers.documents.start = batch.document_start.empty() ? nullptr : batch.document_start.data();
}

void Transformer::State::take(std::span<const std::int32_t> all) {
  const std::int64_t sequence = options.sequence;
  expects(static_cast<std::int64_t>(all.size()) == options.micro_batch * (sequence + 1),
          "a micro-batch has sequence + 1 tokens per row");
  std::int32_t *in = a.inputs(), *out = a.labels();
  for (std::int64_t r = 0; r < options.micro_batch; ++r) {
    const std::int32_t* row = all.data() + r * (sequence + 1);
    std::copy(row, row + sequence, in + r * sequence);
    std::copy(row + 1, row + 1 + sequence, out + r * sequence);
  }
  const auto n = static_cast<std::size_t>(tokens);
  take(Batch{{in, n}, {out, n}, {}});
}

/// Once: the tables lie in the arena, which is committed only after the constructor.
void Transformer::State::prepare_rope() {
  if (rope_ready) return;
  kernels::rope_table(a.mat(a.cosine), a.mat(a.sine), shape.rope_theta,
                      {shape.rope_scaling_factor, shape.rope_low_frequency, shape.rope_high_frequency,
                       static_cast<double>(shape.rope_original_sequence)});
  rope_ready = true;
}

void Transformer::State::forward() {
  weights().acquire(0);
  const Mat x = a.mat(shape.layers > 0 ? a.blocks[0].input : a.output);
  kernels().embed(layers.stream, x, layers.weight(roles.embedding), inputs);
  weights().release(0);
  report(Phase::forward, 0);

  ConstMat residual = x, added;  // nothing is added yet
  for (int layer = 0; layer < shape.layers; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    weights().acquire(layer + 1);
    forward_block(layers, a, a.blocks[i], roles.blocks[i], residual, added);
    weights().release(layer + 1);
    report(Phase::forward, layer + 1);
    residual = a.mat(a.blocks[i].middle), added = a.mat(a.branch);
  }
}

/// Final norm, head and loss, and, with `gradients`, their gradients.
LeafLoss Transformer::State::head(bool gradients) {
  const int unit = shape.layers + 1;
  if (shape.tied_embeddings) weights().acquire(0);
  weights().acquire(unit);
  const Mat output = a.mat(a.output), normed = a.mat(a.output_normed), d_normed = a.mat(a.branch);
  float* inverse_rms = a.floats(a.output_inverse_rms);
  ConstMat residual, added;
  if (shape.layers > 0) residual = a.mat(a.blocks.back().middle), added = a.mat(a.branch);
  layers.norm(output, residual, added, normed, inverse_rms, roles.final_norm);

  LeafLoss loss;
  kernels::HeadLoss h;
  h.hidden = normed, h.head = layers.weight(roles.head), h.labels = labels, h.logits = a.mat(a.logits);
  h.loss = &loss.sum, h.valid = &loss.valid;
  if (gradients) h.d_hidden = d_normed, h.d_head = layers.gradient(roles.head);
  kernels().head_loss(layers.stream, h);
  report(Phase::forward, unit);
  if (gradients) {
    layers.norm_backward(output, d_normed, inverse_rms, a.mat(a.d_residual), roles.final_norm,
                         Write::replace);
    weights().reduce(unit);
  }
  weights().release(unit);
  if (shape.tied_embeddings) weights().release(0);
  if (gradients) report(Phase::backward, unit);
  return loss;
}

void Transformer::State::backward() {
  for (int layer = shape.layers - 1; layer >= 0; --layer) {
    const auto i = static_cast<std::size_t>(layer);
    weights().acquire(layer + 1);
    backward_block(layers, a, a.blocks[i], roles.blocks[i]);
    weights().reduce(layer + 1);
    weights().release(layer + 1);
    report(Phase::backward, layer + 1);
  }
  if (const Mat d_table = layers.gradient(roles.embedding))
    kernels().embed_backward(layers.stream, d_table, a.mat(a.d_residual), inputs,
                             shape.tied_embeddings ? Write::add : Write::replace);
  weights().reduce(0);
  report(Phase::backward, 0);
}

LeafLoss Transformer::State::run(Weights& w, bool gradients) {
  layers.weights = &w;
  prepare_rope();
  forward();
  const LeafLoss loss = head(gradients);
  if (gradients) backward();
  return loss;
}

Transformer::Transformer(const config::ModelShape& shape, const Options& options, kernels::Kernels& kernels,
                         tensor::Stream& stream, tensor::Arena& arena)
    : state_(std::make_unique<State>(shape, options, kernels, stream, arena)) {}
Transformer::~Transformer() = default;

LeafLoss Transformer::leaf(Weights& weights, const Batch& batch) {
  state_->take(batch);
  return state_->run(weights, true);
}
LeafLoss Transformer::leaf(Weights& weights, std::span<const std::int32_t> tokens) {
  state_->take(tokens);
  return state_->run(weights, true);
}
LeafLoss Transformer::evaluate(Weights& weights, const Batch& batch) {
  state_->take(batch);
  return state_->run(weights, false);
}
LeafLoss Transformer::evaluate(Weights& weights, std::span<const std::int32_t> tokens) {
  state_->take(tokens);
  return state_->run(weights, false);
}
void Transformer::on_progress(std::function<void(Phase, int unit)> callback) {
  state_->progress = std::move(callback);
}

}  // namespace holdfast::model
