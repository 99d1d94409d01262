#pragma once
// The operators of one model at one micro-batch: kernels with the shape's constants filled in. Weights and
// gradients are resolved before the operators are enqueued, so that these depend on nothing but addresses.
#include "src/config/architecture.hpp"
#include "src/kernels/kernels.hpp"
#include "src/model/adapter_layers.hpp"
#include "src/model/fp8_layers.hpp"
#include "src/model/options.hpp"
#include "src/model/roles.hpp"
#include "src/model/weights.hpp"

namespace holdfast::model {

using kernels::ConstMat;
using kernels::Mat;
using kernels::Write;

/// Fills the rotary tables of a model's blocks, or of those with a window, as kernels::rope_table() does.
void fill_rope_table(Mat cosine, Mat sine, const config::ModelShape& shape, bool windowed);

/// A linear layer where it lies now.
struct Linear {
  ConstMat weight, bias;         ///< out x in; 1 x out, or none
  Mat d_weight, d_bias;          ///< none: not wanted
  Write write = Write::replace;  ///< of d_weight
  int number = 0;                ///< over all blocks
  Adapter adapter;               ///< none without adapters
};
/// A norm's gain.
struct Gain {
  ConstMat weight;  ///< 1 x d
  Mat gradient;     ///< none: not wanted
};
/// All of a block, by role.
struct BlockWeights {
  std::array<Linear, config::linears_of_block> linears;
  std::array<Gain, config::roles_of_block> gains;
  const Linear& linear(Role role) const { return linears.at(as_size(role)); }
  const Gain& gain(Role role) const { return gains.at(as_size(role)); }
};

struct Layers {
  kernels::Kernels& kernels;
  tensor::Stream& stream;
  const config::ModelShape& shape;
  const Options& options;
  Weights* weights = nullptr;  ///< of the running micro-batch
  kernels::Documents documents;
  const Fp8Layers* fp8 = nullptr;  ///< multiplies the blocks' linear layers; null: in the type of activations
  const AdapterLayers* adapters = nullptr;  ///< null: there are none
  kernels::Documents windows =
      {};  ///< for attention in blocks with a window; null: none is shorter than a row

  /// Empty where the model has no such tensor.
  ConstMat weight(Stored t) const;
  /// Empty where there is no such tensor or it is frozen.
  Mat gradient(Stored t) const;
  /// Of an acquired unit. `gradients`: also where the micro-batch's gradients go.
  Linear linear(int number, Stored weight, Stored bias, const AdapterRoles& adapters, bool gradients) const;
  Gain gain(Stored t, bool gradients) const;
  BlockWeights block(int layer, const Block& b, bool gradients) const;

  /// What else the kernel that makes x (T x cols) has to do, so that forward() may follow.
  kernels::Quantize input(const Linear& l, Pass pass) const;
  /// y = x W^T (+ bias)
  void forward(Mat y, ConstMat x, const Linear& l, Pass pass) const;
  /// dW = dy^T x and db = sum of dy over tokens, where wanted; then dx = dy W. d_x may be where x is: x is
  /// read first.
  void backward(Mat d_x, ConstMat d_y, ConstMat x, const Linear& l) const;

  // Where a model multiplies what half blocks add to the residual, the residual is kept divided by this
  // factor: then nothing has to be multiplied in a block, embeddings are divided by it, and norms see the
  // same but for their epsilon.

  /// x (T x d) = what enters the first block.
  void embed(Mat x, ConstMat table, const std::int32_t* tokens) const;
  /// Adds the gradient of the table. d_x: the gradient of what enters the first block, overwritten.
  void embed_backward(Mat d_table, Mat d_x, const std::int32_t* tokens, Write write) const;
  /// Factor of what the head reads, and of its gradient.
  double logit_factor() const { return 1 / shape.logits_scaling; }
  /// x *= factor
  void scale(Mat x, double factor) const;

  /// sum = residual + added; with nothing added it is where the residual already is. `input`: of the layer
  /// that reads it.
  void add(Mat sum, ConstMat residual, ConstMat added, const kernels::Quantize& input = {}) const;
  /// sum = residual + added; normed = RMSNorm(sum). With nothing added `sum` is where the residual already
  /// is. `input`: of the layer that reads `normed`.
  void norm(Mat sum, ConstMat residual, ConstMat added, Mat normed, float* inverse_rms, const Gain& g,
            const kernels::Quantize& input = {}) const;
  void norm_backward(ConstMat sum, ConstMat d_normed, const float* inverse_rms, Mat d_sum, const Gain& g,
                     Write write = Write::add) const;

  /// RMSNorm over all queries, and over all keys; values are copied.
  void norm_whole(Mat out, ConstMat in, float* inverse_rms, const Gain& q, const Gain& k) const;
  /// d: the gradient of `out`, becomes that of `in`.
  void norm_whole_backward(Mat d, ConstMat in, const float* inverse_rms, const Gain& q, const Gain& k) const;

  /// out = silu(gate) * up, attention's output; `input`: of the layer that reads it.
  void swiglu(Mat out, ConstMat gate_up, const kernels::Quantize& input = {}) const;
  void attend(const kernels::Attention& call, const kernels::Quantize& input = {}) const;
  void rope(Mat qkv, ConstMat cosine, ConstMat sine, bool backward) const;
  /// Epsilon of norms of the residual.
  float residual_epsilon() const;
  /// Attention's constants, in a block with or without a window; the caller fills in the matrices.
  kernels::Attention attention(bool windowed) const;
};

}  // namespace holdfast::model
