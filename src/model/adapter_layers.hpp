#pragma once
// Linear layers with low-rank adapters: y = x W^T + scale (drop(x) A^T) B^T. W is frozen: it has no gradient,
// but the gradient passes through it. A layer may consist of several (q|k|v), whose A lie one below the other
// and so read x once, with one mask; each has a B of its own, for its columns of y.
//
// Sums of several products are fp32 and rounded once: with other activations they are made in a room of
// head_chunk tokens at a time.
#include <array>
#include <cstdint>

#include "src/kernels/kernels.hpp"
#include "src/model/activations.hpp"

namespace holdfast::model {

using kernels::ConstMat;
using kernels::Mat;

/// The adapters of a linear layer where they lie now.
struct Adapter {
  struct Part {
    ConstMat b;  ///< out of the part x rank
    Mat d_b;     ///< none: not wanted
    std::int64_t first_col = 0;
  };
  ConstMat a;  ///< count * rank x in
  Mat d_a;     ///< none: not wanted
  std::array<Part, 3> parts;
  int count = 0;  ///< of parts; 0: no adapters
};

class AdapterLayers {
 public:
  /// References outlive it.
  AdapterLayers(kernels::Kernels& kernels, tensor::Stream& stream, Activations& activations,
                const config::Adapters& adapters, const Options& options);

  /// Evaluations leave nothing out.
  void begin_micro_batch(bool training) { training_ = training; }
  bool drops() const { return training_ && adapters_.dropout > 0; }

  // `linear`: its number over all blocks.
  /// y = x W^T (+ bias) + scale (drop(x) A^T) B^T
  void forward(int linear, Mat y, ConstMat x, ConstMat weight, ConstMat bias, const Adapter& adapter) const;
  /// Gradients of A and B where wanted, then dx = dy W + scale drop(dy B A). d_x may be where x is.
  void backward(int linear, Mat d_x, ConstMat d_y, ConstMat x, ConstMat weight, const Adapter& adapter) const;

 private:
  /// x as A reads it.
  ConstMat input(int linear, ConstMat x) const;
  /// Columns of part i among the layer's ranks.
  ConstMat part(ConstMat inner, int i) const { return inner.cols_at(i * adapters_.rank, adapters_.rank); }
  Mat part(Mat inner, int i) const { return inner.cols_at(i * adapters_.rank, adapters_.rank); }
  void scale(Mat out, ConstMat in) const;
  kernels::Dropout drop(int linear, Mat out, ConstMat in) const;
  /// Calls make(rows of y as fp32, first token, tokens) for all tokens and leaves the results in y.
  template <class Make>
  void in_chunks(Mat y, bool directly, const Make& make) const;

  kernels::Kernels& kernels_;
  tensor::Stream& stream_;
  Activations& a_;
  const config::Adapters& adapters_;
  const Options& options_;
  bool training_ = false;
};

}  // namespace holdfast::model
