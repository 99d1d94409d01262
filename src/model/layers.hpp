#pragma once
// The operators of one model at one micro-batch: kernels with the shape's constants filled in.
#include "src/config/model_shape.hpp"
#include "src/kernels/kernels.hpp"
#include "src/model/options.hpp"
#include "src/model/roles.hpp"
#include "src/model/weights.hpp"

namespace holdfast::model {

using kernels::ConstMat;
using kernels::Mat;
using kernels::Write;

struct Layers {
  kernels::Kernels& kernels;
  tensor::Stream& stream;
  const config::ModelShape& shape;
  const Options& options;
  Weights* weights = nullptr;  ///< of the running leaf
  kernels::Documents documents;

  /// Empty where the model has no such tensor.
  ConstMat weight(Stored t) const;
  /// Empty where there is no such tensor or it is frozen.
  Mat gradient(Stored t) const;

  /// y = x W^T (+ bias)
  void linear(Mat y, ConstMat x, Stored w, Stored bias = {}) const;
  /// dW = dy^T x and db = sum of dy over tokens, unless frozen; then dx = dy W. d_x may be where x is: x is
  /// read first.
  void linear_backward(Mat d_x, ConstMat d_y, ConstMat x, Stored w, Stored bias = {}) const;

  /// sum = residual + added; normed = RMSNorm(sum). With nothing added `sum` is where the residual already
  /// is.
  void norm(Mat sum, ConstMat residual, ConstMat added, Mat normed, float* inverse_rms, Stored gain) const;
  void norm_backward(ConstMat sum, ConstMat d_normed, const float* inverse_rms, Mat d_sum, Stored gain,
                     Write write = Write::add) const;

  void rope(Mat qkv, ConstMat cosine, ConstMat sine, bool backward) const;
  /// Attention's constants; the caller fills in the matrices.
  kernels::Attention attention() const;
};

}  // namespace holdfast::model
