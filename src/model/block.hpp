#pragma once
// One transformer block: config::block_ops() forwards and backwards. A sum is left open as (residual, added)
// until the next norm makes it.
#include <span>

#include "src/model/activations.hpp"
#include "src/model/layers.hpp"

namespace holdfast::model {

/// What enters a block: x = residual + added. No `added`: x lies in the block's input already.
struct Entering {
  ConstMat residual, added;
};

/// The rotary tables of an operation.
inline Activation cosine_of(const config::ModelShape& shape, const config::BlockOp& op) {
  return op.windowed && shape.window_rope_theta > 0 ? Activation::window_cosine : Activation::cosine;
}
inline Activation sine_of(const config::ModelShape& shape, const config::BlockOp& op) {
  return op.windowed && shape.window_rope_theta > 0 ? Activation::window_sine : Activation::sine;
}

/// One operation forwards. `next`: the linear layer that reads its result, computed behind it; else null.
void run_forward(const Layers& layers, const config::BlockOp& op, Matrices& m, const BlockWeights& weights,
                 const Entering& entering, const Linear* next, Pass pass);

/// All of them. Leaves x'' = middle + branch.
void forward_block(const Layers& layers, std::span<const config::BlockOp> ops, BlockActivations& m,
                   const BlockWeights& weights, const Entering& entering);

/// All of them from the last to the first. `d_residual` holds the gradient of x'' and receives that of x; it
/// is also the gradient of whatever was added to the residual. What the forward pass did not keep is computed
/// again.
void backward_block(const Layers& layers, std::span<const config::BlockOp> ops, BlockActivations& m,
                    const BlockWeights& weights);

}  // namespace holdfast::model
