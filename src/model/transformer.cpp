#include "src/model/transformer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/model/roles.hpp"

namespace holdfast::model {

using kernels::Attention;
using kernels::AttentionGradient;
using kernels::Documents;
using kernels::HeadLoss;
using kernels::Norm;
using kernels::NormGradient;
using kernels::Rope;
using kernels::Write;
using tensor::Arena;
using tensor::ConstMat;
using tensor::dense;
using tensor::ExactSum;
using tensor::Mat;

namespace {

/// A planned matrix; becomes a Mat once the arena is committed.
struct PlannedMat {
  Arena::Piece<float> piece;
  std::int64_t rows = 0, cols = 0;
};

/// What a block's forward pass leaves for its backward pass. T x ... each.
struct Saved {
  PlannedMat input;             ///< residual that enters the block
  PlannedMat attention_normed;  ///< normalised input
  PlannedMat qkv, attended, log_sum;
  PlannedMat middle;  ///< residual after attention
  PlannedMat mlp_normed, gate_up, activated;
  PlannedMat inverse_rms;  ///< 2 x T: attention norm, mlp norm
};

}  // namespace

struct Transformer::State {
  const config::ModelShape shape;
  const std::int64_t rows, sequence, tokens;
  kernels::Kernels& kernels;
  tensor::Stream& stream;
  Arena& arena;
  const Roles roles;
  std::function<void(Phase, int)> progress;

  std::vector<Saved> saved;
  PlannedMat output, output_normed, output_inverse_rms;  // the final norm's
  PlannedMat branch;                                     // what the latest half block adds to the residual
  PlannedMat d_residual, d_normed, d_attended, d_qkv, d_activated, d_gate_up;
  PlannedMat logits, cosine, sine;
  Arena::Piece<float> attention_workspace;
  Arena::Piece<std::int32_t> own_inputs, own_labels;
  bool rope_ready = false;
  Documents documents;
  const std::int32_t* inputs = nullptr;
  const std::int32_t* labels = nullptr;

  State(const config::ModelShape& s, int micro_batch, int sequence_length, kernels::Kernels& k,
        tensor::Stream& st, Arena& a)
      : shape(s),
        rows(micro_batch),
        sequence(sequence_length),
        tokens(rows * sequence),
        kernels(k),
        stream(st),
        arena(a),
        roles(s) {
    expects(micro_batch > 0 && sequence_length > 0, "a micro-batch has rows and tokens");
    expects(s.heads % s.kv_heads == 0 && s.width % s.heads == 0 && s.head_size() % 2 == 0,
            "the model's shape was checked");
    const std::int64_t d = s.width, f = s.ffn, packed = qkv_columns();
    for (int layer = 0; layer < s.layers; ++layer) {
      const std::string at = fmt::format("block {} ", layer);
      saved.push_back({plan(at + "input", tokens, d), plan(at + "attention normed", tokens, d),
                       plan(at + "qkv", tokens, packed), plan(at + "attended", tokens, d),
                       plan(at + "log sum", s.heads, tokens), plan(at + "middle", tokens, d),
                       plan(at + "mlp normed", tokens, d), plan(at + "gate up", tokens, 2 * f),
                       plan(at + "activated", tokens, f), plan(at + "inverse rms", 2, tokens)});
    }
    output = plan("output", tokens, d), output_normed = plan("output normed", tokens, d);
    output_inverse_rms = plan("output inverse rms", 1, tokens);
    branch = plan("branch", tokens, d);
    d_residual = plan("d residual", tokens, d), d_normed = plan("d normed", tokens, d);
    d_attended = plan("d attended", tokens, d), d_qkv = plan("d qkv", tokens, packed);
    d_activated = plan("d activated", tokens, f), d_gate_up = plan("d gate up", tokens, 2 * f);
    logits = plan("logits", std::min(tokens, kernels::head_chunk), s.vocabulary);
    cosine = plan("rope cosine", sequence, s.head_size() / 2),
    sine = plan("rope sine", sequence, s.head_size() / 2);
    attention_workspace = arena.plan<float>("attention workspace", kernels.workspace(attention_shape()));
    own_inputs = arena.plan<std::int32_t>("inputs", tokens),
    own_labels = arena.plan<std::int32_t>("labels", tokens);
  }

  std::int64_t qkv_columns() const {
    return static_cast<std::int64_t>(shape.heads + 2 * shape.kv_heads) * shape.head_size();
  }
  PlannedMat plan(std::string name, std::int64_t r, std::int64_t c) {
    return {arena.plan<float>(std::move(name), r * c), r, c};
  }
  Mat mat(const PlannedMat& m) { return dense(arena.at(m.piece), m.rows, m.cols); }
  float* data(const PlannedMat& m) { return arena.at(m.piece); }
  static ConstMat weight(Weights& w, Stored t) { return dense(w.weight(t.index), t.rows, t.cols); }
  static Mat gradient(Weights& w, Stored t) { return dense(w.gradient(t.index), t.rows, t.cols); }

  Attention attention_shape() const {
    Attention a;
    a.heads = shape.heads, a.kv_heads = shape.kv_heads, a.head_size = shape.head_size();
    a.sequence = static_cast<int>(sequence);
    return a;
  }
  Attention attention(const Saved& s) {
    Attention a = attention_shape();
    a.qkv = mat(s.qkv), a.out = mat(s.attended), a.log_sum = data(s.log_sum);
    a.documents = documents, a.workspace = arena.at(attention_workspace);
    return a;
  }
  void rope(Mat qkv, bool backward) {
    kernels.rope(stream, {qkv, shape.heads, shape.kv_heads, shape.head_size(), static_cast<int>(sequence),
                          mat(cosine), mat(sine), documents, backward});
  }
  /// y = x W^T
  void linear(Mat y, ConstMat x, ConstMat w) { kernels.matmul(stream, y, x, false, w, true, Write::replace); }
  /// dx = dy W and dW = dy^T x
  void linear_backward(Mat d_x, Mat d_w, ConstMat d_y, ConstMat x, ConstMat w) {
    kernels.matmul(stream, d_x, d_y, false, w, false, Write::replace);
    kernels.matmul(stream, d_w, d_y, true, x, false, Write::replace);
  }
  /// sum = residual + branch; normed = RMSNorm(sum). Without a branch `sum` is where the residual already is.
  void norm(Mat sum, ConstMat residual, ConstMat added, Mat normed, float* inverse_rms, ConstMat gain) {
    kernels.norm(stream, {added ? residual : ConstMat(sum), added, sum, normed, gain.data, inverse_rms,
                          static_cast<float>(shape.norm_epsilon)});
  }
  void norm_backward(ConstMat sum, ConstMat d_out, ConstMat gain, const float* inverse_rms, Mat d_sum,
                     float* d_gain, Write write = Write::add) {
    kernels.norm_backward(stream, {sum, d_out, gain.data, inverse_rms, d_sum, d_gain, write});
  }
  void report(Phase phase, int unit) {
    if (progress) progress(phase, unit);
  }

  void take(const Batch& batch);
  void take(std::span<const std::int32_t> all);
  void forward(Weights& w);
  void forward_block(Weights& w, int layer, ConstMat residual, ConstMat added);
  LeafLoss head(Weights& w, bool gradients);
  void backward(Weights& w);
  void backward_block(Weights& w, int layer);
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
    expects(
        batch.document_start[i] >= 0 && batch.document_start[i] <= static_cast<std::int64_t>(i) % sequence,
        "a document starts in its row, at or before its tokens");
  inputs = batch.inputs.data(), labels = batch.labels.data();
  documents.start = batch.document_start.empty() ? nullptr : batch.document_start.data();
}

void Transformer::State::take(std::span<const std::int32_t> all) {
  expects(static_cast<std::int64_t>(all.size()) == rows * (sequence + 1),
          "a micro-batch has sequence + 1 tokens per row");
  std::int32_t *in = arena.at(own_inputs), *out = arena.at(own_labels);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int32_t* row = all.data() + r * (sequence + 1);
    std::copy(row, row + sequence, in + r * sequence);
    std::copy(row + 1, row + 1 + sequence, out + r * sequence);
  }
  const auto n = static_cast<std::size_t>(tokens);
  take(Batch{{in, n}, {out, n}, {}});
}

void Transformer::State::forward(Weights& w) {
  w.acquire(0);
  const Mat x = mat(shape.layers > 0 ? saved[0].input : output);
  kernels.embed(stream, x, weight(w, roles.embedding), inputs);
  w.release(0);
  report(Phase::forward, 0);

  ConstMat residual = x, added;  // nothing is added yet
  for (int layer = 0; layer < shape.layers; ++layer) {
    w.acquire(layer + 1);
    forward_block(w, layer, residual, added);
    w.release(layer + 1);
    report(Phase::forward, layer + 1);
    residual = mat(saved[static_cast<std::size_t>(layer)].middle), added = mat(branch);
  }
}

/// x' = x + Attention(RMSNorm(x)); x'' = x' + SwiGLU(RMSNorm(x')). The sum x = residual + added, left open by
/// the block before, is made here; the last sum is left open in `branch`.
void Transformer::State::forward_block(Weights& w, int layer, ConstMat residual, ConstMat added) {
  const Saved& s = saved[static_cast<std::size_t>(layer)];
  const Block& b = roles.blocks[static_cast<std::size_t>(layer)];
  norm(mat(s.input), residual, added, mat(s.attention_normed), data(s.inverse_rms),
       weight(w, b.attention_norm));
  linear(mat(s.qkv), mat(s.attention_normed), weight(w, b.qkv));
  rope(mat(s.qkv), false);
  kernels.attention(stream, attention(s));
  linear(mat(branch), mat(s.attended), weight(w, b.o));

  norm(mat(s.middle), mat(s.input), mat(branch), mat(s.mlp_normed), data(s.inverse_rms) + tokens,
       weight(w, b.mlp_norm));
  linear(mat(s.gate_up), mat(s.mlp_normed), weight(w, b.gate_up));
  kernels.swiglu(stream, mat(s.activated), mat(s.gate_up));
  linear(mat(branch), mat(s.activated), weight(w, b.down));
}

/// Final norm, head and loss, and, with `gradients`, their gradients.
LeafLoss Transformer::State::head(Weights& w, bool gradients) {
  const int unit = shape.layers + 1;
  if (shape.tied_embeddings) w.acquire(0);
  w.acquire(unit);
  const bool any = shape.layers > 0;
  norm(mat(output), any ? mat(saved.back().middle) : mat(output), any ? ConstMat(mat(branch)) : ConstMat(),
       mat(output_normed), data(output_inverse_rms), weight(w, roles.final_norm));
  LeafLoss loss;
  HeadLoss h;
  h.hidden = mat(output_normed), h.head = weight(w, roles.head), h.labels = labels, h.logits = mat(logits);
  h.loss = &loss.sum, h.valid = &loss.valid;
  if (gradients) h.d_hidden = mat(d_normed), h.d_head = gradient(w, roles.head);
  kernels.head_loss(stream, h);
  report(Phase::forward, unit);
  if (gradients) {
    norm_backward(mat(output), mat(d_normed), weight(w, roles.final_norm), data(output_inverse_rms),
                  mat(d_residual), gradient(w, roles.final_norm).data, Write::replace);
    w.reduce(unit);
  }
  w.release(unit);
  if (shape.tied_embeddings) w.release(0);
  if (gradients) report(Phase::backward, unit);
  return loss;
}

void Transformer::State::backward(Weights& w) {
  for (int layer = shape.layers - 1; layer >= 0; --layer) {
    w.acquire(layer + 1);
    backward_block(w, layer);
    w.reduce(layer + 1);
    w.release(layer + 1);
    report(Phase::backward, layer + 1);
  }
  kernels.embed_backward(stream, gradient(w, roles.embedding), mat(d_residual), inputs,
                         shape.tied_embeddings ? Write::add : Write::replace);
  w.reduce(0);
  report(Phase::backward, 0);
}

/// forward_block from its last line to its first. d_residual holds the gradient of the block's output and
/// receives that of its input; it is also the gradient of whatever was added to the residual.
void Transformer::State::backward_block(Weights& w, int layer) {
  const Saved& s = saved[static_cast<std::size_t>(layer)];
  const Block& b = roles.blocks[static_cast<std::size_t>(layer)];
  const Mat d = mat(d_residual);
  linear_backward(mat(d_activated), gradient(w, b.down), d, mat(s.activated), weight(w, b.down));
  kernels.swiglu_backward(stream, mat(d_gate_up), mat(d_activated), mat(s.gate_up));
  linear_backward(mat(d_normed), gradient(w, b.gate_up), mat(d_gate_up), mat(s.mlp_normed),
                  weight(w, b.gate_up));
  norm_backward(mat(s.middle), mat(d_normed), weight(w, b.mlp_norm), data(s.inverse_rms) + tokens, d,
                gradient(w, b.mlp_norm).data);

  linear_backward(mat(d_attended), gradient(w, b.o), d, mat(s.attended), weight(w, b.o));
  kernels.attention_backward(stream, attention(s), AttentionGradient{mat(d_attended), mat(d_qkv)});
  rope(mat(d_qkv), true);
  linear_backward(mat(d_normed), gradient(w, b.qkv), mat(d_qkv), mat(s.attention_normed), weight(w, b.qkv));
  norm_backward(mat(s.input), mat(d_normed), weight(w, b.attention_norm), data(s.inverse_rms), d,
                gradient(w, b.attention_norm).data);
}

LeafLoss Transformer::State::run(Weights& w, bool gradients) {
  if (!rope_ready) kernels::rope_table(mat(cosine), mat(sine), shape.rope_theta);
  rope_ready = true;
  forward(w);
  const LeafLoss loss = head(w, gradients);
  if (gradients) backward(w);
  return loss;
}

Transformer::Transformer(const config::ModelShape& shape, int micro_batch, int sequence,
                         kernels::Kernels& kernels, tensor::Stream& stream, Arena& arena)
    : state_(std::make_unique<State>(shape, micro_batch, sequence, kernels, stream, arena)) {}
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
