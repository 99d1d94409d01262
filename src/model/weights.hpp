#pragma once
// How the transformer gets its weights and leaves its gradients, one sharding unit at a time, so that a unit
// may be gathered just before it is needed and its gradient reduced while the backward pass goes on.
//
// Units and stored tensors are those of config::stored_tensors_of(): unit 0 the embedding, 1..L the blocks,
// L+1 the final norm and the head. For one micro-batch the model calls, in this order:
//   forward    acquire(u), weight()..., release(u)                                       for u = 0..L
//   head       acquire(L+1), weight()..., gradient()..., reduce(L+1), release(L+1)
//   backward   acquire(u), weight()..., gradient()..., reduce(u), release(u)              for u = L..1
//   embedding  gradient(), reduce(0)                                                      no weights needed
// The order is the same for every mode of activation checkpointing. An evaluation ends with the head, without
// gradient() and reduce(). Whatever is frozen, every reduce() is called. Tied embeddings: the head reads the
// embedding, so unit 0 is acquired a second time around the head, and the embedding's gradient is begun there
// (head part replaced) and completed at the end (embedding part added): its place must live from the head to
// reduce(0), while gradients of other units come and go.
//
// Types: weights are of the type that the transformer was made for (model::Options::activations), gradients
// fp32 where gradient_type() says nothing else.
#include "src/tensor/dtype.hpp"

namespace holdfast::model {

class Weights {
 public:
  virtual ~Weights() = default;
  /// Afterwards weight() of the unit's stored tensors is whole. Compute enqueued later may use it.
  virtual void acquire(int unit) = 0;
  /// Stored tensor, rows x cols, row-major without gaps. Valid from acquire() to release() of its unit.
  virtual const void* weight(int stored) = 0;
  /// Compute has passed: the unit's gather buffer may be used for another.
  virtual void release(int unit) = 0;
  /// Where the micro-batch's gradient of a whole stored tensor goes. The model overwrites it, once per
  /// micro-batch, unless adds(). Valid until reduce() of its unit. Null: the tensor is frozen and its
  /// gradient is not computed; whether it is, is the same at every call.
  virtual float* gradient(int stored) = 0;
  /// The product that computes the gradient adds it to what lies there, each element by one fp32 addition.
  /// Only for weights of the blocks' linear layers (config::StoredTensor::linear); the same answer from
  /// gradient() to reduce().
  virtual bool adds(int stored) {
    static_cast<void>(stored);
    return false;
  }
  /// The gradient's type at gradient(): fp32, or bf16, to which the product that computes it rounds its sums,
  /// once. bf16 only for the same weights, where activations are bf16, too, and never where it adds. The same
  /// answer at every call.
  virtual tensor::DType gradient_type(int stored) {
    static_cast<void>(stored);
    return tensor::DType::fp32;
  }
  /// All gradients of the unit are written for this micro-batch.
  virtual void reduce(int unit) = 0;
};

}  // namespace holdfast::model
