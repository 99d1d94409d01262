#include "src/model/layers.hpp"

namespace holdfast::model {

using kernels::Quantize;

namespace {

const Quantize* wanted(const Quantize& q) { return q.out || q.amax != nullptr ? &q : nullptr; }

}  // namespace

void fill_rope_table(Mat cosine, Mat sine, const config::ModelShape& shape, bool windowed) {
  if (windowed && shape.window_rope_theta > 0)
    return kernels::rope_table(cosine, sine, shape.window_rope_theta);
  kernels::rope_table(cosine, sine, shape.rope_theta,
                      {shape.rope_scaling_factor, shape.rope_low_frequency, shape.rope_high_frequency,
                       static_cast<double>(shape.rope_original_sequence), shape.rope_type,
                       shape.rope_magnitude, shape.rope_short_factors});
}

ConstMat Layers::weight(Stored t) const {
  if (t.index < 0) return {};
  return tensor::dense(weights->weight(t.index), options.activations, t.rows, t.cols);
}

Mat Layers::gradient(Stored t) const {
  if (t.index < 0) return {};
  return tensor::dense(weights->gradient(t.index), t.rows, t.cols);
}

Linear Layers::linear(int number, Stored w, Stored bias, const AdapterRoles& roles, bool gradients) const {
  Linear l{weight(w), weight(bias), {}, {}, Write::replace, number, {}};
  if (gradients) {
    l.d_weight = tensor::dense(weights->gradient(w.index), weights->gradient_type(w.index), w.rows, w.cols);
    if (weights->adds(w.index)) l.write = Write::add;
    l.d_bias = gradient(bias);
  }
  if (roles.count == 0) return l;
  l.adapter.a = weight(roles.a);
  l.adapter.count = roles.count;
  if (gradients) l.adapter.d_a = gradient(roles.a);
  for (int i = 0; i < roles.count; ++i) {
    const auto& role = roles.parts[i];
    l.adapter.parts[i] = {weight(role.b), gradients ? gradient(role.b) : Mat{}, role.first_col};
  }
  return l;
}

Gain Layers::gain(Stored t, bool gradients) const { return {weight(t), gradients ? gradient(t) : Mat{}}; }

BlockWeights Layers::block(int layer, const Block& b, bool gradients) const {
  BlockWeights out;
  for (int i = 0; i < config::roles_of_block; ++i)
    if (const auto role = as_size(i); config::is_linear(static_cast<Role>(i)))
      out.linears[role] = linear(layer * config::linears_of_block + i, b.weight[role], b.bias[role],
                                 b.adapters[role], gradients);
    else
      out.gains[role] = gain(b.weight[role], gradients);
  return out;
}

Quantize Layers::input(const Linear& l, Pass pass) const {
  return fp8 == nullptr ? Quantize{} : fp8->input(l.number, options.tokens(), l.weight.cols, pass);
}

void Layers::forward(Mat y, ConstMat x, const Linear& l, Pass pass) const {
  if (fp8 != nullptr) return fp8->forward(l.number, y, x, l.weight, l.bias, pass);
  if (l.adapter.count > 0) return adapters->forward(l.number, y, x, l.weight, l.bias, l.adapter);
  kernels.matmul(stream, y, x, false, l.weight, true, Write::replace, l.bias);
}

void Layers::backward(Mat d_x, ConstMat d_y, ConstMat x, const Linear& l) const {
  if (fp8 == nullptr && l.d_weight) kernels.matmul(stream, l.d_weight, d_y, true, x, false, l.write);
  if (l.adapter.count > 0) return adapters->backward(l.number, d_x, d_y, x, l.weight, l.adapter);
  if (l.d_bias) kernels.column_sums(stream, l.d_bias.row<float>(0), d_y);
  if (fp8 != nullptr)
    fp8->backward(l.number, d_x, l.d_weight, l.write, d_y, x, l.weight);
  else
    kernels.matmul(stream, d_x, d_y, false, l.weight, false, Write::replace);
}

void Layers::embed(Mat x, ConstMat table, const std::int32_t* tokens) const {
  kernels.embed(stream, x, table, tokens);
  scale(x, shape.embedding_multiplier / shape.residual_multiplier);
}

void Layers::embed_backward(Mat d_table, Mat d_x, const std::int32_t* tokens, Write write) const {
  scale(d_x, shape.embedding_multiplier / shape.residual_multiplier);
  kernels.embed_backward(stream, d_table, d_x, tokens, write);
}

void Layers::scale(Mat x, double factor) const {
  if (factor == 1) return;
  kernels::Dropout all;  // of which nothing is left out
  all.out = x;
  all.in = x;
  all.factor = static_cast<float>(factor);
  kernels.dropout(stream, all);
}

float Layers::residual_epsilon() const {
  return static_cast<float>(shape.norm_epsilon / (shape.residual_multiplier * shape.residual_multiplier));
}

void Layers::add(Mat sum, ConstMat residual, ConstMat added, const Quantize& input) const {
  if (added) kernels.add(stream, sum, residual, added);
  if (wanted(input) != nullptr) kernels.quantize(stream, sum, input);
}

void Layers::norm(Mat sum, ConstMat residual, ConstMat added, Mat normed, float* inverse_rms, const Gain& g,
                  const Quantize& input) const {
  kernels.norm(stream, {added ? residual : ConstMat(sum), added, sum, normed, g.weight, inverse_rms,
                        residual_epsilon(), wanted(input)});
}

void Layers::norm_backward(ConstMat sum, ConstMat d_normed, const float* inverse_rms, Mat d_sum,
                           const Gain& g, Write write) const {
  kernels.norm_backward(stream, {sum, d_normed, g.weight, inverse_rms, d_sum,
                                 g.gradient ? g.gradient.row<float>(0) : nullptr, write});
}

void Layers::norm_whole(Mat out, ConstMat in, float* inverse_rms, const Gain& q, const Gain& k) const {
  const std::int64_t queries = shape.query_width(), keys = shape.key_width();
  const auto epsilon = static_cast<float>(shape.norm_epsilon);
  kernels.norm(stream,
               {in.cols_at(0, queries), {}, {}, out.cols_at(0, queries), q.weight, inverse_rms, epsilon});
  kernels.norm(stream, {in.cols_at(queries, keys),
                        {},
                        {},
                        out.cols_at(queries, keys),
                        k.weight,
                        inverse_rms + in.rows,
                        epsilon});
  kernels::Dropout values;  // all stay: a copy
  values.out = out.cols_at(queries + keys, keys);
  values.in = in.cols_at(queries + keys, keys);
  kernels.dropout(stream, values);
}

void Layers::norm_whole_backward(Mat d, ConstMat in, const float* inverse_rms, const Gain& q,
                                 const Gain& k) const {
  const std::int64_t queries = shape.query_width(), keys = shape.key_width();
  const Mat d_queries = d.cols_at(0, queries), d_keys = d.cols_at(queries, keys);
  norm_backward(in.cols_at(0, queries), d_queries, inverse_rms, d_queries, q, Write::replace);
  norm_backward(in.cols_at(queries, keys), d_keys, inverse_rms + in.rows, d_keys, k, Write::replace);
}

void Layers::swiglu(Mat out, ConstMat gate_up, const Quantize& input) const {
  kernels.swiglu(stream, out, gate_up, wanted(input));
}

void Layers::attend(const kernels::Attention& call, const Quantize& input) const {
  kernels.attention(stream, call);
  if (wanted(input) != nullptr) kernels.quantize(stream, call.out, input);
}

void Layers::rope(Mat qkv, ConstMat cosine, ConstMat sine, bool backward) const {
  kernels.rope(stream, {qkv, shape.heads, shape.kv_heads, shape.head_size(), options.sequence, cosine, sine,
                        documents, backward});
}

kernels::Attention Layers::attention(bool windowed) const {
  kernels::Attention a;
  a.heads = shape.heads;
  a.kv_heads = shape.kv_heads;
  a.head_size = shape.head_size();
  a.sequence = options.sequence;
  a.documents = windowed && windows.start != nullptr ? windows : documents;
  a.scale = shape.attention_multiplier;
  return a;
}

}  // namespace holdfast::model
