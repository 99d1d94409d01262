#include "tests/support/reference_llama.hpp"

#include <cmath>
#include <numbers>

namespace holdfast::reference {

namespace {
using i64 = std::int64_t;
using Var = Tape::Var;
}  // namespace

Var rms_norm(Tape& t, Var x, Var gain, double epsilon) {
  const auto n = static_cast<double>(t.value(x).cols);
  const Var squares = t.row_sums(t.multiply(x, x));
  const Var inverse = t.map(
      squares, [=](double s) { return 1 / std::sqrt(s / n + epsilon); },
      [=](double s) { return -0.5 / n * std::pow(s / n + epsilon, -1.5); });
  return t.multiply(t.multiply(x, inverse), gain);
}

double rope_frequency(i64 j, i64 half, double theta, const Stretch& stretch) {
  const double frequency = std::pow(theta, -static_cast<double>(j) / static_cast<double>(half));
  if (!stretch.factors.empty()) return frequency / stretch.factors[j];
  // How many turns the pair makes within the original context: many are kept, few are slowed down.
  const double turns = stretch.original * frequency / (2 * std::numbers::pi);
  if (turns > stretch.high) return frequency;
  if (turns < stretch.low) return frequency / stretch.factor;
  const double keep = (turns - stretch.low) / (stretch.high - stretch.low);
  return keep * frequency + (1 - keep) * frequency / stretch.factor;
}

Var rope(Tape& t, Var x, const Places& places, double theta, const Stretch& stretch, i64 rotary) {
  const i64 tokens = t.value(x).rows, all = t.value(x).cols, half = (rotary > 0 ? rotary : all) / 2;
  Array cosine(tokens, half), sine(tokens, half), minus_sine(tokens, half);
  for (i64 i = 0; i < tokens; ++i)
    for (i64 j = 0; j < half; ++j) {
      const double angle = static_cast<double>(places.position(i)) * rope_frequency(j, half, theta, stretch);
      cosine.at(i, j) = stretch.magnitude * std::cos(angle);
      sine.at(i, j) = stretch.magnitude * std::sin(angle);
      minus_sine.at(i, j) = -sine.at(i, j);
    }
  const Var c = t.input(cosine), s = t.input(sine), m = t.input(minus_sine);
  const Var a = t.columns(x, 0, half), b = t.columns(x, half, half);
  std::vector<Var> parts = {t.add(t.multiply(a, c), t.multiply(b, m)),
                            t.add(t.multiply(b, c), t.multiply(a, s))};
  if (2 * half < all) parts.push_back(t.columns(x, 2 * half, all - 2 * half));
  return t.join_columns(parts);
}

Var attention(Tape& t, Var q, Var k, Var v, int heads, int kv_heads, const Places& places, double factor,
              i64 window) {
  const i64 size = t.value(q).cols / heads, rows = t.value(q).rows / places.sequence, n = places.sequence;
  const double scale = factor > 0 ? factor : 1 / std::sqrt(static_cast<double>(size));
  std::vector<Var> out;
  for (i64 row = 0; row < rows; ++row) {
    auto part = [&](Var x, i64 head) { return t.rows(t.columns(x, head * size, size), row * n, n); };
    std::vector<Var> of_heads;
    for (i64 h = 0; h < heads; ++h) {
      const i64 shared = h * kv_heads / heads;
      const Var scores = t.map(
          t.matmul_transposed(part(q, h), part(k, shared)), [=](double s) { return s * scale; },
          [=](double) { return scale; });
      const Var p = t.softmax(scores, [&](i64 i, i64 j) {
        return j <= i && j >= places.start_of(row * n + i) && (window == 0 || i - j < window);
      });
      of_heads.push_back(t.matmul(p, part(v, shared)));
    }
    out.push_back(t.join_columns(of_heads));
  }
  return t.join_rows(out);
}

Var swiglu(Tape& t, Var gate, Var up) {
  auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const Var silu = t.map(
      gate, [=](double x) { return x * sigmoid(x); },
      [=](double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); });
  return t.multiply(silu, up);
}

MicroBatch run_micro_batch(const Model& model, const Tokens& inputs, const Tokens& labels,
                           const Places& places, bool gradients) {
  const auto& shape = model.shape;
  Tape t;
  std::vector<Var> weights;
  for (const Array& w : model.weights) weights.push_back(t.input(w));
  const Stretch stretch{shape.rope_scaling_factor, shape.rope_low_frequency,
                        shape.rope_high_frequency, static_cast<double>(shape.rope_original_sequence),
                        shape.rope_magnitude,      shape.rope_short_factors};
  Array column(static_cast<i64>(inputs.size()), 1);
  for (double& one : column.v) one = 1;
  const Var ones = t.input(column);
  std::size_t next = 0;
  auto weight = [&] { return weights.at(next++); };
  auto rotated = [&](Var x, int heads, bool windowed) {
    const bool own = windowed && shape.window_rope_theta > 0;
    std::vector<Var> parts;
    for (int h = 0; h < heads; ++h)
      parts.push_back(rope(t, t.columns(x, h * shape.head_size(), shape.head_size()), places,
                           own ? shape.window_rope_theta : shape.rope_theta, own ? Stretch() : stretch,
                           shape.rotary_dim));
    return t.join_columns(parts);
  };
  auto head_normed = [&](Var v, Var gain, int heads) {
    std::vector<Var> parts;
    for (int h = 0; h < heads; ++h)
      parts.push_back(
          rms_norm(t, t.columns(v, h * shape.head_size(), shape.head_size()), gain, shape.norm_epsilon));
    return t.join_columns(parts);
  };
  auto biased = [&](Var y) { return t.add(y, t.matmul_transposed(ones, weight())); };
  const Var table = weight();
  auto scaled = [&](Var v, double factor) {
    return t.map(
        v, [=](double y) { return y * factor; }, [=](double) { return factor; });
  };
  Var x = scaled(t.gather(table, inputs), shape.embedding_multiplier);
  for (int layer = 0; layer < shape.layers; ++layer) {
    const auto normed = [&](Var v) { return rms_norm(t, v, weight(), shape.norm_epsilon); };
    const Var a = shape.norm_after ? x : normed(x);
    Var qkv[3];
    for (Var& y : qkv) y = t.matmul_transposed(a, weight());
    if (shape.qkv_bias)
      for (Var& y : qkv) y = biased(y);
    if (shape.qk_norm) {
      const Var q_gain = weight(), k_gain = weight();
      const bool whole = shape.qk_norm_whole;
      qkv[0] =
          whole ? rms_norm(t, qkv[0], q_gain, shape.norm_epsilon) : head_normed(qkv[0], q_gain, shape.heads);
      qkv[1] = whole ? rms_norm(t, qkv[1], k_gain, shape.norm_epsilon)
                     : head_normed(qkv[1], k_gain, shape.kv_heads);
    }
    const bool turns = shape.nope_every == 0 || layer % shape.nope_every != shape.nope_every - 1;
    const bool windowed =
        shape.window > 0 && (shape.full_every == 0 || layer % shape.full_every != shape.full_every - 1);
    const Var q = turns ? rotated(qkv[0], shape.heads, windowed) : qkv[0],
              k = turns ? rotated(qkv[1], shape.kv_heads, windowed) : qkv[1];
    Var y = t.matmul_transposed(attention(t, q, k, qkv[2], shape.heads, shape.kv_heads, places,
                                          shape.attention_multiplier, windowed ? shape.window : 0),
                                weight());
    if (shape.o_bias) y = biased(y);
    if (shape.norm_after) y = normed(y);
    x = t.add(x, scaled(y, shape.residual_multiplier));
    const Var b = shape.norm_after ? x : normed(x);
    Var gate_up[2];
    for (Var& z : gate_up) z = t.matmul_transposed(b, weight());
    if (shape.mlp_bias)
      for (Var& z : gate_up) z = biased(z);
    Var z = t.matmul_transposed(swiglu(t, gate_up[0], gate_up[1]), weight());
    if (shape.mlp_bias) z = biased(z);
    if (shape.norm_after) z = normed(z);
    x = t.add(x, scaled(z, shape.residual_multiplier));
  }
  const Var normed = rms_norm(t, x, weight(), shape.norm_epsilon);
  const Var logits = t.matmul_transposed(normed, shape.tied_embeddings ? table : weight());
  const Var loss = t.cross_entropy(scaled(logits, 1 / shape.logits_scaling), labels);

  MicroBatch micro_batch;
  micro_batch.loss = t.value(loss).v[0];
  for (const auto label : labels) micro_batch.valid += label >= 0 ? 1 : 0;
  if (!gradients) return micro_batch;
  Array one(1, 1);
  one.v[0] = 1;
  t.backward(loss, one);
  for (const Var w : weights) micro_batch.gradients.push_back(t.gradient(w));
  return micro_batch;
}

double learning_rate(const Optimizer& o, int step) {
  if (step < o.warmup) return o.lr * (step + 1) / o.warmup;
  const double progress = static_cast<double>(step + 1 - o.warmup) / (o.steps - o.warmup);
  return o.min_lr + 0.5 * (o.lr - o.min_lr) * (1 + std::cos(std::numbers::pi * progress));
}

Trainer::Trainer(Model model, Optimizer optimizer) : model_(std::move(model)), optimizer_(optimizer) {
  for (const Array& w : model_.weights) m_.emplace_back(w.rows, w.cols), v_.emplace_back(w.rows, w.cols);
}

double Trainer::step(const std::vector<MicroBatch>& micro_batches) {
  const auto specs = config::tensors_of(model_.shape);
  double loss = 0, valid = 0, squares = 0;
  for (const MicroBatch& micro_batch : micro_batches) {
    loss += micro_batch.loss;
    valid += static_cast<double>(micro_batch.valid);
  }
  auto gradient = [&](std::size_t tensor, std::size_t i) {
    double sum = 0;
    for (const MicroBatch& micro_batch : micro_batches) sum += micro_batch.gradients[tensor].v[i];
    return sum / valid;
  };
  for (std::size_t k = 0; k < m_.size(); ++k)
    for (std::size_t i = 0; i < m_[k].v.size(); ++i) squares += std::pow(gradient(k, i), 2);
  norm_ = std::sqrt(squares);
  const double clip = norm_ > optimizer_.clip_norm ? optimizer_.clip_norm / norm_ : 1;
  const double lr = learning_rate(optimizer_, steps_);
  ++steps_;
  for (std::size_t k = 0; k < m_.size(); ++k)
    for (std::size_t i = 0; i < m_[k].v.size(); ++i) {
      const double g = clip * gradient(k, i);
      double &m = m_[k].v[i], &v = v_[k].v[i], &p = model_.weights[k].v[i];
      m = optimizer_.beta1 * m + (1 - optimizer_.beta1) * g;
      v = optimizer_.beta2 * v + (1 - optimizer_.beta2) * g * g;
      const double mean = m / (1 - std::pow(optimizer_.beta1, steps_)),
                   variance = v / (1 - std::pow(optimizer_.beta2, steps_));
      if (specs[k].kind == config::TensorKind::matrix) p -= lr * optimizer_.weight_decay * p;
      p -= lr * mean / (std::sqrt(variance) + optimizer_.epsilon);
    }
  return loss / valid;
}

}  // namespace holdfast::reference
