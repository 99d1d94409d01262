#pragma once
// Linear layers whose operands are 8-bit copies: y = x W^T, dx = dy W and dW = dy^T x, where x and W are
// e4m3, dy is e5m2, and every sum is that of bf16 products. Tensor cores want both operands along the inner
// size, so copies are made as they lie for one product and transposed for another. Copies live for one
// product, or those of W until it changes, both made at once (Options::keeps_copies). The scale of an operand
// lives as long as the micro-batch, that of a kept copy as long as the copy, so that x and W are the same
// numbers in the forward and in the backward pass, whatever is computed again.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/kernels/kernels.hpp"
#include "src/model/activations.hpp"
#include "src/model/fp8_scaling.hpp"

namespace holdfast::model {

using kernels::ConstMat;
using kernels::Mat;

/// again: a forward pass that is recomputed, with the scales of the first and without recording anything.
enum class Pass { first, again };

class Fp8Layers {
 public:
  /// Of a model made with such `options`. References outlive it.
  Fp8Layers(kernels::Kernels& kernels, tensor::Stream& stream, Activations& activations,
            const Options& options, const config::ModelShape& shape);

  /// Scales of all roles, see Fp8Scaling::scales(). Until the first call none is known.
  void set_scales(std::span<const float> scales);
  /// Of every role the bits of the largest |x| of the micro-batches since the last call. Waits for them.
  void take_amaxes(std::span<std::uint32_t> amaxes);

  /// Weights have changed, or their scales: copies of them are made again in the next micro-batch.
  void new_weights() { stale_ = true; }
  /// `records`: largest values are remembered for take_amaxes(); with delayed scaling only.
  void begin_micro_batch(bool records);
  /// What the kernel calls of a block depend on besides addresses: equal numbers, equal calls.
  std::uint64_t variant(int layer) const;

  // `linear`: its number over all blocks.
  /// What the kernel that makes x (tokens x cols) does for forward() at once.
  kernels::Quantize input(int linear, std::int64_t tokens, std::int64_t cols, Pass pass) const;
  /// y = x W^T (+ bias); what input() asked for has been done for x.
  void forward(int linear, Mat y, ConstMat x, ConstMat weight, ConstMat bias, Pass pass) const;
  /// dW = dy^T x unless there is no d_weight (`write`: replaced, or added to), then dx = dy W. d_x may be
  /// where x is.
  void backward(int linear, Mat d_x, Mat d_weight, kernels::Write write, ConstMat d_y, ConstMat x,
                ConstMat weight) const;

 private:
  /// Nothing is known of it beforehand: the tensor is read for its scale first.
  bool measured(int role) const { return known_[role] == 0; }
  /// An 8-bit copy; `measure`: the scale comes from x itself, when nothing else is known.
  void copy(ConstMat x, int role, Mat out, Mat transposed, bool measure) const;
  /// scale[role] from what was measured.
  void find_scale(int role) const;
  kernels::Quantize quantize(int role, Mat out, Mat transposed, bool record) const;
  /// Where the kept copies of a weight lie.
  struct Kept {
    Mat along, turned;
  };
  Kept kept(int linear, ConstMat weight) const;
  float* inverse(int role) const { return a_.mat(Activation::fp8_inverse).row<float>(role); }
  std::uint32_t* words(Activation what) const { return reinterpret_cast<std::uint32_t*>(a_.floats(what)); }

  kernels::Kernels& kernels_;
  tensor::Stream& stream_;
  Activations& a_;
  bool delayed_, keeps_, records_ = false;
  bool stale_ = true, makes_copies_ = false;  ///< of kept copies: before the micro-batch, and in it
  std::array<std::int64_t, config::linears_of_block> weights_;  ///< elements
  std::vector<char> known_;                                     ///< by role
  std::vector<float> inverses_;                                 ///< room for set_scales()
};

}  // namespace holdfast::model
