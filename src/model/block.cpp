#include "src/model/block.hpp"

#include <bitset>

namespace holdfast::model {

using config::BlockOp;
using Kind = BlockOp::Kind;
using Mode = config::ActivationCheckpointing;
using Ops = std::span<const BlockOp>;

namespace {

kernels::Attention attention_of(const Layers& layers, const BlockOp& op, Matrices& m) {
  kernels::Attention attention = layers.attention(op.windowed);
  attention.qkv = m.at(op.in);
  attention.out = m.at(op.out);
  attention.log_sum = m.floats(*op.numbers);
  attention.workspace = m.workspace();
  return attention;
}

void rope(const Layers& layers, const BlockOp& op, Matrices& m, Mat qkv, bool backward) {
  layers.rope(qkv, m.at(cosine_of(layers.shape, op)), m.at(sine_of(layers.shape, op)), backward);
}

kernels::HeadNorm head_norm_of(const Layers& layers, const BlockOp& op, Matrices& m, const BlockWeights& w) {
  const config::ModelShape& shape = layers.shape;
  return {m.at(op.in),
          m.at(op.out),
          w.gain(Role::q_norm).weight,
          w.gain(Role::k_norm).weight,
          m.floats(*op.numbers),
          shape.heads,
          shape.kv_heads,
          shape.head_size(),
          static_cast<float>(shape.norm_epsilon)};
}

float* numbers_of(const Mat& gradient) { return gradient ? gradient.row<float>(0) : nullptr; }

/// The linear layer that reads the result of operation i at once; null: another operation does.
const Linear* reader(Ops ops, std::size_t i, const BlockWeights& w) {
  return i + 1 < ops.size() && ops[i + 1].kind == Kind::linear ? &w.linear(ops[i + 1].role) : nullptr;
}

/// Everything again but a product at the end, whose result the backward pass does not need.
void forward_again(const Layers& layers, Ops ops, BlockActivations& m, const BlockWeights& w) {
  const std::size_t count = ops.size() - (ops.back().kind == Kind::linear ? 1 : 0);
  for (std::size_t i = 0; i < count; ++i)
    run_forward(layers, ops[i], m, w, {}, i + 1 < count ? reader(ops, i, w) : nullptr, Pass::again);
}

/// Makes what blocks do not keep again, each matrix once, when the backward pass first needs it.
class Again {
 public:
  Again(const Layers& layers, Ops ops, BlockActivations& m, const BlockWeights& w)
      : layers_(layers), ops_(ops), m_(m), w_(w) {}

  void need(Activation what) {
    if (made_.test(as_size(what)) || !m_.all().shared(what)) return;
    made_.set(as_size(what));
    for (const BlockOp& op : ops_) {
      if (op.out != what || op.kind == Kind::add) continue;
      need(op.in);
      if (op.kind == Kind::norm)  // its sum is kept: nothing is added any more
        layers_.norm(m_.at(op.in), {}, {}, m_.at(op.out), m_.floats(*op.numbers), w_.gain(op.role));
      else
        run_forward(layers_, op, m_, w_, {}, nullptr, Pass::again);
    }
  }

 private:
  const Layers& layers_;
  Ops ops_;
  BlockActivations& m_;
  const BlockWeights& w_;
  std::bitset<config::activations> made_;
};

/// Where the gradient of a matrix lies: often in its own place.
Mat gradient_of(Activation what, BlockActivations& m) {
  switch (what) {
    case Activation::input:  // where a product reads the residual: its share, which is added to the rest
    case Activation::middle:
      return m.at(Activation::branch);
    case Activation::branch:
      return m.at(Activation::d_residual);
    case Activation::attended:
      return m.all().d_attended();
    case Activation::projected:
    case Activation::qkv:
      return m.at(Activation::d_qkv);
    case Activation::gate_up:
      return m.at(Activation::d_gate_up);
    default:
      return m.at(what);
  }
}

void run_backward(const Layers& layers, const BlockOp& op, BlockActivations& m, const BlockWeights& w) {
  const Mat d_out = gradient_of(op.out, m);
  switch (op.kind) {
    case Kind::norm:
      return layers.norm_backward(m.at(op.in), d_out, m.floats(*op.numbers), m.at(Activation::d_residual),
                                  w.gain(op.role));
    case Kind::add:
      return;  // both terms have the sum's gradient
    case Kind::norm_after:
      return layers.norm_backward(m.at(op.in), d_out, m.floats(*op.numbers), gradient_of(op.in, m),
                                  w.gain(op.role), Write::replace);
    case Kind::linear:
      layers.backward(gradient_of(op.in, m), d_out, m.at(op.in), w.linear(op.role));
      if (op.in == Activation::input || op.in == Activation::middle)
        layers.add(m.at(Activation::d_residual), m.at(Activation::d_residual), gradient_of(op.in, m));
      return;
    case Kind::head_norm:
      if (layers.shape.qk_norm_whole)
        return layers.norm_whole_backward(d_out, m.at(op.in), m.floats(*op.numbers), w.gain(Role::q_norm),
                                          w.gain(Role::k_norm));
      return layers.kernels.head_norm_backward(
          layers.stream, head_norm_of(layers, op, m, w),
          {d_out, numbers_of(w.gain(Role::q_norm).gradient), numbers_of(w.gain(Role::k_norm).gradient)});
    case Kind::rope:
      return rope(layers, op, m, d_out, true);
    case Kind::attention:
      return layers.kernels.attention_backward(layers.stream, attention_of(layers, op, m),
                                               {d_out, gradient_of(op.in, m)});
    case Kind::swiglu:
      return layers.kernels.swiglu_backward(layers.stream, gradient_of(op.in, m), d_out, m.at(op.in));
  }
}

}  // namespace

void run_forward(const Layers& layers, const BlockOp& op, Matrices& m, const BlockWeights& w,
                 const Entering& entering, const Linear* next, Pass pass) {
  const kernels::Quantize input = next != nullptr ? layers.input(*next, pass) : kernels::Quantize{};
  const bool first = op.in == Activation::input;
  const auto residual = [&] { return first ? entering.residual : m.at(Activation::input); };
  const auto added = [&] { return first ? entering.added : m.at(Activation::branch); };
  switch (op.kind) {
    case Kind::norm:
      return layers.norm(m.at(op.in), residual(), added(), m.at(op.out), m.floats(*op.numbers),
                         w.gain(op.role), input);
    case Kind::add:
      return layers.add(m.at(op.out), residual(), added(), input);
    case Kind::norm_after:
      return layers.norm(m.at(op.in), {}, {}, m.at(op.out), m.floats(*op.numbers), w.gain(op.role), input);
    case Kind::linear:
      return layers.forward(m.at(op.out), m.at(op.in), w.linear(op.role), pass);
    case Kind::head_norm:
      if (layers.shape.qk_norm_whole)
        return layers.norm_whole(m.at(op.out), m.at(op.in), m.floats(*op.numbers), w.gain(Role::q_norm),
                                 w.gain(Role::k_norm));
      return layers.kernels.head_norm(layers.stream, head_norm_of(layers, op, m, w));
    case Kind::rope:
      return rope(layers, op, m, m.at(op.out), false);
    case Kind::attention:
      return layers.attend(attention_of(layers, op, m), input);
    case Kind::swiglu:
      return layers.swiglu(m.at(op.out), m.at(op.in), input);
  }
}

void forward_block(const Layers& layers, Ops ops, BlockActivations& m, const BlockWeights& w,
                   const Entering& entering) {
  for (std::size_t i = 0; i < ops.size(); ++i)
    run_forward(layers, ops[i], m, w, entering, reader(ops, i, w), Pass::first);
}

void backward_block(const Layers& layers, Ops ops, BlockActivations& m, const BlockWeights& w) {
  const bool all = layers.options.activation_checkpointing == Mode::full;
  if (all) forward_again(layers, ops, m, w);
  Again again(layers, ops, m, w);
  for (std::size_t i = ops.size(); i-- > 0;) {
    if (!all) again.need(ops[i].in);
    run_backward(layers, ops[i], m, w);
  }
}

}  // namespace holdfast::model
