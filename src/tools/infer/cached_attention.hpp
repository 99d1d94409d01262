#pragma once
// Causal attention of the newest tokens of a sequence to all of it.
#include "src/tensor/mat.hpp"

namespace holdfast::infer {

using tensor::ConstMat;
using tensor::Mat;

/// Grouped queries as kernels::Attention has them. The last query sees all keys, the one before it all but
/// the last, and so on. Scores, softmax and sums are fp32; the result is rounded once.
struct CachedAttention {
  ConstMat queries;     ///< T x at least heads * head_size, rotated
  ConstMat key_values;  ///< tokens x 2 kv_heads * head_size: keys, rotated, then values; tokens >= T
  Mat out;              ///< T x heads * head_size
  int heads = 1, kv_heads = 1, head_size = 2;
  float scale = 0;  ///< of scores; 0: head_size^-1/2
  int window = 0;   ///< a query sees so many keys, its own among them; 0: all before it
};

/// One query row and the query heads of one key/value head, from 0 to T * kv_heads - 1: a piece of work that
/// writes its own part of `out`.
void attend(const CachedAttention& attention, std::int64_t task);

}  // namespace holdfast::infer
