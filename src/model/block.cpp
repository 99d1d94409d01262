#include "src/model/block.hpp"

namespace holdfast::model {

using Mode = config::ActivationCheckpointing;

namespace {

kernels::Attention attention_of(const Layers& layers, Activations& a, const BlockBuffers& b) {
  kernels::Attention attention = layers.attention();
  attention.qkv = a.mat(b.qkv);
  attention.out = a.mat(b.attended);
  attention.log_sum = a.floats(b.log_sum);
  attention.workspace = a.workspace();
  return attention;
}

float* attention_rms(Activations& a, const BlockBuffers& b) { return a.floats(b.inverse_rms); }
float* mlp_rms(Activations& a, const BlockBuffers& b) { return a.mat(b.inverse_rms).row<float>(1); }

/// Everything but the last product, whose result the backward pass does not need.
void forward_to_activated(const Layers& layers, Activations& a, const BlockBuffers& b, const BlockWeights& w,
                          ConstMat residual, ConstMat added, Pass pass) {
  layers.norm(a.mat(b.input), residual, added, a.mat(b.attention_normed), attention_rms(a, b),
              w.attention_norm, layers.input(w.qkv, pass));
  layers.forward(a.mat(b.qkv), a.mat(b.attention_normed), w.qkv, pass);
  layers.rope(a.mat(b.qkv), a.mat(a.cosine), a.mat(a.sine), false);
  layers.attend(attention_of(layers, a, b), layers.input(w.o, pass));
  layers.forward(a.mat(a.branch), a.mat(b.attended), w.o, pass);

  layers.norm(a.mat(b.middle), a.mat(b.input), a.mat(a.branch), a.mat(b.mlp_normed), mlp_rms(a, b),
              w.mlp_norm, layers.input(w.gate_up, pass));
  layers.forward(a.mat(b.gate_up), a.mat(b.mlp_normed), w.gate_up, pass);
  layers.swiglu(a.mat(b.activated), a.mat(b.gate_up),
                pass == Pass::first ? layers.input(w.down, pass) : kernels::Quantize{});
}

}  // namespace

void forward_block(const Layers& layers, Activations& a, const BlockBuffers& b, const BlockWeights& w,
                   ConstMat residual, ConstMat added) {
  forward_to_activated(layers, a, b, w, residual, added, Pass::first);
  layers.forward(a.mat(a.branch), a.mat(b.activated), w.down, Pass::first);
}

void backward_block(const Layers& layers, Activations& a, const BlockBuffers& b, const BlockWeights& w) {
  kernels::Kernels& k = layers.kernels;
  const Mode mode = layers.options.activation_checkpointing;
  const bool pointwise = mode == Mode::selective || mode == Mode::attention;
  const Mat d = a.mat(a.d_residual), d_qkv = a.mat(a.d_qkv), d_gate_up = a.mat(a.d_gate_up);
  const Mat attention_normed = a.mat(b.attention_normed), mlp_normed = a.mat(b.mlp_normed),
            activated = a.mat(b.activated), d_attended = a.mat(a.branch);

  if (mode == Mode::full) forward_to_activated(layers, a, b, w, {}, {}, Pass::again);
  if (pointwise) layers.swiglu(activated, a.mat(b.gate_up));
  layers.backward(activated, d, activated, w.down);
  k.swiglu_backward(layers.stream, d_gate_up, activated, a.mat(b.gate_up));
  if (pointwise) layers.norm(a.mat(b.middle), {}, {}, mlp_normed, mlp_rms(a, b), w.mlp_norm);
  layers.backward(mlp_normed, d_gate_up, mlp_normed, w.gate_up);
  layers.norm_backward(a.mat(b.middle), mlp_normed, mlp_rms(a, b), d, w.mlp_norm);

  if (mode == Mode::attention) layers.attend(attention_of(layers, a, b));
  layers.backward(d_attended, d, a.mat(b.attended), w.o);
  k.attention_backward(layers.stream, attention_of(layers, a, b), {d_attended, d_qkv});
  layers.rope(d_qkv, a.mat(a.cosine), a.mat(a.sine), true);
  if (pointwise) layers.norm(a.mat(b.input), {}, {}, attention_normed, attention_rms(a, b), w.attention_norm);
  layers.backward(attention_normed, d_qkv, attention_normed, w.qkv);
  layers.norm_backward(a.mat(b.input), attention_normed, attention_rms(a, b), d, w.attention_norm);
}

}  // namespace holdfast::model
