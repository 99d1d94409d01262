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

void Layers::linear(Mat y, ConstMat x, Stored w, Stored bias) const {
  kernels.matmul(stream, y, x, false, weight(w), true, Write::replace, weight(bias));
}

void Layers::linear_backward(Mat d_x, ConstMat d_y, ConstMat x, Stored w, Stored bias) const {
  if (const Mat d_w = gradient(w)) kernels.matmul(stream, d_w, d_y, true, x, false, Write::replace);
  if (const Mat d_bias = gradient(bias)) kernels.column_sums(stream, d_bias.row<float>(0), d_y);
  kernels.matmul(stream, d_x, d_y, false, weight(w), false, Write::replace);
}

void Layers::norm(Mat sum, ConstMat residual, ConstMat added, Mat normed, float* inverse_rms,
                  Stored gain) const {
  kernels.norm(stream, {added ? residual : ConstMat(sum), added, sum, normed, weight(gain), inverse_rms,
                        static_cast<float>(shape.norm_epsilon)});
}

void Layers::norm_backward(ConstMat sum, ConstMat d_normed, const float* inverse_rms, Mat d_sum, Stored gain,
                           Write write) const {
  const Mat d_gain = gradient(gain);
  kernels.norm_backward(stream, {sum, d_normed, weight(gain), inverse_rms, d_sum,
                                 d_gain ? d_gain.row<float>(0) : nullptr, write});
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
