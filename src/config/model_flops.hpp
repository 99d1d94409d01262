#pragma once
// Model FLOPs utilisation (MFU): which part of its devices' peak a run uses for what the model needs. Pure.
#include <string_view>

#include "src/config/model_shape.hpp"

namespace holdfast::config {

/// Floating-point operations that training needs for one token; what is computed again does not count.
struct TokenFlops {
  /// 6 N + 12 L H Q T: Chowdhery et al., "PaLM: Scaling language modeling with pathways" (2022), appendix B,
  /// with heads H of size Q, and sequences of T tokens. N: parameters without the table of the embedding,
  /// which is looked up and not multiplied, unless the head is the same table. Frozen parameters have no
  /// gradients: 4 N of them, and 6 N of their adapters. In blocks with a window of W < T tokens, T is
  /// replaced by 2 W - W^2 / T: twice the keys that a token attends to on average.
  double palm = 0;
  /// The same with half of the attention term, since a token attends to none behind it.
  double causal = 0;
};
/// `sequence`: tokens. Boundaries of documents, which spare some attention, are not counted.
TokenFlops token_flops(const ModelShape& shape, int sequence);

/// FLOP/s in bf16 without sparsity of a device by its vendor's name ("NVIDIA H100 80GB HBM3"); 0: not known,
/// also of a part of a device (MIG).
double peak_flops_of(std::string_view device);

}  // namespace holdfast::config
