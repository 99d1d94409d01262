#pragma once
// One transformer block: x' = x + Attention(RMSNorm(x)); x'' = x' + SwiGLU(RMSNorm(x')). A sum is left open
// as (residual, added) until the next norm makes it.
#include "src/model/activations.hpp"
#include "src/model/layers.hpp"

namespace holdfast::model {

/// Enters with x = residual + added (no `added`: x lies in the block's input buffer already). Leaves
/// x'' = b.middle + a.branch.
void forward_block(const Layers& layers, Activations& a, const BlockBuffers& b, const BlockWeights& weights,
                   ConstMat residual, ConstMat added);

/// forward_block from its last line to its first. a.d_residual holds the gradient of x'' and receives that of
/// x; it is also the gradient of whatever was added to the residual. What the forward pass did not keep is
/// computed again.
void backward_block(const Layers& layers, Activations& a, const BlockBuffers& b, const BlockWeights& weights);

}  // namespace holdfast::model
