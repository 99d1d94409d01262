// A micro-batch, in this order:
//
// - take() checks the batch and uploads it, with the places where the documents and windows of its tokens
//   begin.
// - forward() embeds the tokens and runs the operations of each block; head() is the final norm, the head and
//   the loss, and with gradients also their backward pass; backward() goes through the blocks from the last
//   to the first, and ends with the embedding.
// - take_losses() brings the sums of the losses to the host and waits for them, as take_amaxes() does; no
//   other call waits for the stream.
//
// Every sharding unit is acquired before it is read and released behind it, in the same order on every rank,
// so that its gather can be started ahead; reduce() hands over the gradients of a unit once they are whole.
// The kernels of a block are enqueued through repeat(): its key holds every address and every choice that
// they depend on, so that a GPU may replay a recorded graph for an equal key.
#include "src/model/transformer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/model/activations.hpp"
#include "src/model/block.hpp"
#include "src/model/layers.hpp"
#include "src/model/roles.hpp"

namespace holdfast::model {

namespace {

/// Bytes of scratch that attention needs at this shape.
std::int64_t attention_workspace(const Layers& layers) {
  kernels::Attention a = layers.attention(false);
  a.qkv.type = layers.options.activations;
  a.qkv.rows = layers.options.tokens();
  a.qkv.cols = config::width_of(layers.shape, Activation::qkv);
  return layers.kernels.workspace(a);
}

std::vector<std::vector<config::BlockOp>> ops_of(const config::ModelShape& shape) {
  std::vector<std::vector<config::BlockOp>> out;
  for (int layer = 0; layer < shape.layers; ++layer) out.push_back(config::block_ops(shape, layer));
  return out;
}

}  // namespace

struct Transformer::State {
  const config::ModelShape shape;
  const Options options;
  const std::int64_t tokens;
  const Roles roles;
  const std::vector<std::vector<config::BlockOp>> ops;  // by layer
  Layers layers;
  Activations a;
  std::optional<Fp8Layers> fp8;
  std::optional<AdapterLayers> adapters;
  std::function<void(Direction, int)> progress;
  bool rope_ready = false;
  Entering left;                             // by the last block, for the final norm
  std::vector<std::int32_t> inputs, labels;  // of a batch that came as rows of tokens
  std::vector<std::int32_t> windows;      // where those of its tokens begin; empty: all are longer than a row
  std::span<const std::int32_t> sources;  // of the batch that is computed, by row
  std::vector<tensor::ExactSum> losses;   // on their way from the device, by source
  std::vector<std::int64_t> valid;

  State(const config::ModelShape& s, const Options& o, kernels::Kernels& kernels, tensor::Stream& stream,
        tensor::Arena& arena)
      : shape(s),
        options(o),
        tokens(o.tokens()),
        roles(s),
        ops(ops_of(s)),
        layers{kernels, stream, shape, options, nullptr, {}},
        a(s, o, attention_workspace(layers), arena),
        inputs(as_size(tokens)),
        labels(as_size(tokens)),
        windows(s.window > 0 && s.window < o.sequence ? as_size(tokens) : 0),
        losses(as_size(o.sources)),
        valid(as_size(o.sources)) {
    expects(s.heads % s.kv_heads == 0 && s.head_size() % 2 == 0, "the model's shape was checked");
    if (o.products == config::Products::fp8) layers.fp8 = &fp8.emplace(kernels, stream, a, options, shape);
    if (s.adapters.any()) layers.adapters = &adapters.emplace(kernels, stream, a, shape.adapters, options);
  }

  Weights& weights() { return *layers.weights; }
  kernels::Kernels& kernels() { return layers.kernels; }
  void report(Direction direction, int unit) {
    if (progress) progress(direction, unit);
  }

  void take(const Batch& batch);
  void take(std::span<const std::int32_t> all);
  void upload(std::int32_t* to, std::span<const std::int32_t> from);
  void repeat(Direction direction, int unit, const BlockWeights& w, ConstMat added, tensor::Task work);
  void take_windows(std::span<const std::int32_t> document_start);
  void prepare_rope();
  void forward();
  void head(bool gradients);
  void backward();
  void run(Weights& w, bool gradients);
  void take_losses();
};

/// Checks the batch and brings it to where the kernels read it.
void Transformer::State::take(const Batch& batch) {
  const auto n = as_size(tokens);
  expects(batch.inputs.size() == n && batch.labels.size() == n,
          "a batch holds micro_batch * sequence inputs and labels");
  expects(batch.document_start.empty() || batch.document_start.size() == n,
          "document starts are given for every token or none");
  expects(batch.sources.empty() || batch.sources.size() == as_size(options.micro_batch),
          "sources are given for every row or none");
  for (const std::int32_t source : batch.sources)
    expects(source >= 0 && source < options.sources, "a source of the run");
  sources = batch.sources;
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
  upload(a.words(Activation::inputs), batch.inputs);
  upload(a.words(Activation::labels), batch.labels);
  upload(a.words(Activation::document_start), batch.document_start);
  if (shape.adapters.dropout > 0)
    layers.stream.upload(a.first_sample(), &batch.first_sample, sizeof batch.first_sample);
  layers.documents.start = batch.document_start.empty() ? nullptr : a.words(Activation::document_start);
  take_windows(batch.document_start);
}

/// A token attends to the last `window` ones of its document.
void Transformer::State::take_windows(std::span<const std::int32_t> document_start) {
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const auto place = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % options.sequence);
    windows[i] = std::max(document_start.empty() ? 0 : document_start[i], place - shape.window + 1);
  }
  if (windows.empty()) return;
  upload(a.words(Activation::window_start), windows);
  layers.windows.start = a.words(Activation::window_start);
}

void Transformer::State::upload(std::int32_t* to, std::span<const std::int32_t> from) {
  layers.stream.upload(to, from.data(), static_cast<std::int64_t>(from.size_bytes()));
}

void Transformer::State::take(std::span<const std::int32_t> all) {
  const auto sequence = as_size(options.sequence), rows = as_size(options.micro_batch);
  expects(all.size() == rows * (sequence + 1), "a micro-batch has sequence + 1 tokens per row");
  for (std::size_t r = 0; r < rows; ++r) {
    const auto row = all.subspan(r * (sequence + 1), sequence + 1);
    std::ranges::copy(row.first(sequence), inputs.begin() + static_cast<std::ptrdiff_t>(r * sequence));
    std::ranges::copy(row.last(sequence), labels.begin() + static_cast<std::ptrdiff_t>(r * sequence));
  }
  take(Batch{inputs, labels, {}, 0});
}

/// Once: the tables lie in the arena, which is committed only after the constructor.
void Transformer::State::prepare_rope() {
  if (std::exchange(rope_ready, true)) return;
  const auto prepare = [&](Activation of_cosine, Activation of_sine, bool windowed) {
    const Mat cosine = a.mat(of_cosine), sine = a.mat(of_sine);
    const std::int64_t bytes = cosine.rows * cosine.cols * tensor::bytes_of(cosine.type);
    std::vector<std::byte> tables(2 * bytes);
    const Mat host_cosine = tensor::dense(tables.data(), cosine.type, cosine.rows, cosine.cols),
              host_sine = tensor::dense(tables.data() + bytes, sine.type, sine.rows, sine.cols);
    fill_rope_table(host_cosine, host_sine, shape, windowed);
    layers.stream.upload(cosine.data, host_cosine.data, bytes);
    layers.stream.upload(sine.data, host_sine.data, bytes);
  };
  prepare(Activation::cosine, Activation::sine, false);
  if (shape.window_rope_theta > 0) prepare(Activation::window_cosine, Activation::window_sine, true);
}

/// Everything that a block's kernel calls depend on, so that they can be replayed.
void Transformer::State::repeat(Direction direction, int unit, const BlockWeights& w, ConstMat added,
                                tensor::Task work) {
  std::array<std::uint64_t, 96> key{};
  std::size_t n = 0;
  auto add = [&](const void* address) { key[n++] = reinterpret_cast<std::uintptr_t>(address); };
  key[n++] = static_cast<std::uint64_t>(direction);
  key[n++] = static_cast<std::uint64_t>(unit);
  for (const Gain& g : w.gains)
    if (g.weight) add(g.weight.data), add(g.gradient.data);
  for (const Linear& l : w.linears) {
    for (const void* address :
         {static_cast<const void*>(l.weight.data), static_cast<const void*>(l.bias.data),
          static_cast<const void*>(l.d_weight.data), static_cast<const void*>(l.d_bias.data)})
      add(address);
    if (l.adapter.count == 0) continue;
    add(l.adapter.a.data), add(l.adapter.d_a.data);
    for (const Adapter::Part& part : l.adapter.parts) add(part.b.data), add(part.d_b.data);
  }
  add(added.data), add(layers.documents.start);
  for (const Linear& l : w.linears) key[n] = key[n] << 1 | (l.write == Write::add);
  ++n;
  key[n++] = fp8 ? fp8->variant(unit - 1) : 0;
  key[n++] = adapters && adapters->drops();
  layers.stream.repeat(std::span(key).first(n), work);
}

void Transformer::State::forward() {
  weights().acquire(0);
  const Mat x = a.mat(shape.layers > 0 ? Activation::input : Activation::output);
  layers.embed(x, layers.weight(roles.embedding), a.words(Activation::inputs));
  weights().release(0);
  report(Direction::forward, 0);

  Entering entering{x, {}};  // nothing is added yet
  for (int layer = 0; layer < shape.layers; ++layer) {
    const auto i = as_size(layer);
    weights().acquire(layer + 1);
    const BlockWeights w = layers.block(layer, roles.blocks[i], false);
    BlockActivations block(a, layer);
    repeat(Direction::forward, layer + 1, w, entering.added,
           [&] { forward_block(layers, ops[i], block, w, entering); });
    weights().release(layer + 1);
    report(Direction::forward, layer + 1);
    entering = {block.at(Activation::middle), block.at(Activation::branch)};
  }
  left = entering;
}

/// Final norm, head and loss, and, with `gradients`, their gradients.
void Transformer::State::head(bool gradients) {
  const int unit = shape.layers + 1;
  if (shape.tied_embeddings) weights().acquire(0);
  weights().acquire(unit);
  const Mat output = a.mat(Activation::output), normed = a.mat(Activation::d_residual),
            d_normed = a.mat(Activation::branch);
  float* inverse_rms = a.floats(Activation::output_rms);
  const Gain final_norm = layers.gain(roles.final_norm, gradients);
  layers.norm(output, left.residual, left.added, normed, inverse_rms, final_norm);
  layers.scale(normed, layers.logit_factor());

  kernels::HeadLoss h;
  h.hidden = normed;
  h.head = layers.weight(roles.head);
  h.labels = a.words(Activation::labels);
  h.logits = a.mat(Activation::logits);
  h.loss = a.loss();
  h.valid = a.valid();
  h.sum_of = sources;
  if (gradients) {
    h.d_hidden = d_normed;
    h.d_head = layers.gradient(roles.head);
  }
  kernels().head_loss(layers.stream, h);
  report(Direction::forward, unit);
  if (gradients) {
    layers.scale(d_normed, layers.logit_factor());
    layers.norm_backward(output, d_normed, inverse_rms, a.mat(Activation::d_residual), final_norm,
                         Write::replace);
    weights().reduce(unit);
  }
  weights().release(unit);
  if (shape.tied_embeddings) weights().release(0);
  if (gradients) report(Direction::backward, unit);
}

void Transformer::State::backward() {
  for (int layer = shape.layers - 1; layer >= 0; --layer) {
    const auto i = as_size(layer);
    weights().acquire(layer + 1);
    const BlockWeights w = layers.block(layer, roles.blocks[i], true);
    BlockActivations block(a, layer);
    repeat(Direction::backward, layer + 1, w, {}, [&] { backward_block(layers, ops[i], block, w); });
    weights().reduce(layer + 1);
    weights().release(layer + 1);
    report(Direction::backward, layer + 1);
  }
  if (const Mat d_table = layers.gradient(roles.embedding))
    layers.embed_backward(d_table, a.mat(Activation::d_residual), a.words(Activation::inputs),
                          shape.tied_embeddings ? Write::add : Write::replace);
  weights().reduce(0);
  report(Direction::backward, 0);
}

void Transformer::State::run(Weights& w, bool gradients) {
  layers.weights = &w;
  prepare_rope();
  if (fp8) fp8->begin_micro_batch(gradients);
  if (adapters) adapters->begin_micro_batch(gradients);
  forward();
  head(gradients);
  if (gradients) backward();
}

void Transformer::State::take_losses() {
  tensor::Stream& stream = layers.stream;
  const auto bytes_of_losses = static_cast<std::int64_t>(std::span(losses).size_bytes()),
             bytes_of_valid = static_cast<std::int64_t>(std::span(valid).size_bytes());
  stream.download(losses.data(), a.loss(), bytes_of_losses);
  stream.download(valid.data(), a.valid(), bytes_of_valid);
  stream.zero(a.loss(), bytes_of_losses);
  stream.zero(a.valid(), bytes_of_valid);
}

Transformer::Transformer(const config::ModelShape& shape, const Options& options, kernels::Kernels& kernels,
                         tensor::Stream& stream, tensor::Arena& arena)
    : state_(std::make_unique<State>(shape, options, kernels, stream, arena)) {}
Transformer::~Transformer() = default;

void Transformer::forward_backward(Weights& weights, const Batch& batch) {
  state_->take(batch);
  state_->run(weights, true);
}
void Transformer::forward_backward(Weights& weights, std::span<const std::int32_t> tokens) {
  state_->take(tokens);
  state_->run(weights, true);
}
void Transformer::evaluate(Weights& weights, const Batch& batch) {
  state_->take(batch);
  state_->run(weights, false);
}
void Transformer::evaluate(Weights& weights, std::span<const std::int32_t> tokens) {
  state_->take(tokens);
  state_->run(weights, false);
}
LossSum Transformer::take_loss() {
  state_->take_losses();
  LossSum out;
  for (std::size_t i = 0; i < state_->losses.size(); ++i) out.add({state_->losses[i], state_->valid[i]});
  return out;
}
void Transformer::take_losses(std::span<LossSum> losses) {
  expects(losses.size() == state_->losses.size(), "room for every source");
  state_->take_losses();
  for (std::size_t i = 0; i < losses.size(); ++i) losses[i] = {state_->losses[i], state_->valid[i]};
}
void Transformer::set_scales(std::span<const float> scales) {
  expects(state_->fp8.has_value(), "scales are of 8-bit products");
  state_->fp8->set_scales(scales);
}
void Transformer::new_weights() {
  if (state_->fp8) state_->fp8->new_weights();
}
void Transformer::take_amaxes(std::span<std::uint32_t> amaxes) {
  expects(state_->fp8.has_value(), "largest values are of 8-bit products");
  state_->fp8->take_amaxes(amaxes);
}
void Transformer::on_progress(std::function<void(Direction, int unit)> callback) {
  state_->progress = std::move(callback);
}

}  // namespace holdfast::model
