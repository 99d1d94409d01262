#include "src/model/layers.hpp"

namespace holdfast::model {

ConstMat Layers::weight(Stored t) const {
  if (t.index < 0) return {};
  return tensor::dense(weights->weight(t.index), options.activations, t.rows, t.cols);
}

Mat Layers::gradient(Stored t) const {
  if (t.index < 0) return {};
  return tensor::dense(weights->gradient(t.index), t.rows, t.cols);
}

Linear Layers::linear(Stored w, Stored bias, bool gradients) const {
  Linear l{weight(w), weight(bias), {}, {}};
  if (gradients) l.d_weight = gradient(w), l.d_bias = gradient(bias);
  return l;
}

Gain Layers::gain(Stored t, bool gradients) const { return {weight(t), gradients ? gradient(t) : Mat{}}; }

BlockWeights Layers::block(const Block& b, bool gradients) const {
  return {gain(b.attention_norm, gradients), linear(b.qkv, b.qkv_bias, gradients),
          linear(b.o, {}, gradients),        gain(b.mlp_norm, gradients),
          linear(b.gate_up, {}, gradients),  linear(b.down, {}, gradients)};
}

void Layers::forward(Mat y, ConstMat x, const Linear& l) const {
  kernels.matmul(stream, y, x, false, l.weight, true, Write::replace, l.bias);
}

void Layers::backward(Mat d_x, ConstMat d_y, ConstMat x, const Linear& l) const {
  if (l.d_weight) kernels.matmul(stream, l.d_weight, d_y, true, x, false, Write::replace);
  if (l.d_bias) kernels.column_sums(stream, l.d_bias.row<float>(0), d_y);
  kernels.matmul(stream, d_x, d_y, false, l.weight, false, Write::replace);
}

void Layers::norm(Mat sum, ConstMat residual, ConstMat added, Mat normed, float* inverse_rms,
                  const Gain& g) const {
  kernels.norm(stream, {added ? residual : ConstMat(sum), added, sum, normed, g.weight, inverse_rms,
                        static_cast<float>(shape.norm_epsilon)});
}

void Layers::norm_backward(ConstMat sum, ConstMat d_normed, const float* inverse_rms, Mat d_sum,
                           const Gain& g, Write write) const {
  kernels.norm_backward(stream, {sum, d_normed, g.weight, inverse_rms, d_sum,
                                 g.gradient ? g.gradient.row<float>(0) : nullptr, write});
}

void Layers::rope(Mat qkv, ConstMat cosine, ConstMat sine, bool backward) const {
  kernels.rope(stream, {qkv, shape.heads, shape.kv_heads, shape.head_size(), options.sequence, cosine, sine,
                        documents, backward});
}

kernels::Attention Layers::attention() const {
  kernels::Attention a;
  a.heads = shape.heads, a.kv_heads = shape.kv_heads, a.head_size = shape.head_size();
  a.sequence = options.sequence, a.documents = documents;
  return a;
}

}  // namespace holdfast::model
