#pragma once
// The Llama family: embedding; L blocks of RMSNorm, causal attention with rotary positions and grouped
// queries, RMSNorm, SwiGLU, each with a residual; RMSNorm; head. Llama 2 (Touvron et al., 2023); Llama 3
// stretches the rotary wavelengths; Qwen 2 has a bias on queries, keys and values. Forward and backward are
// written out, there is no autograd.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "src/config/model_shape.hpp"
#include "src/kernels/kernels.hpp"
#include "src/model/options.hpp"
#include "src/model/weights.hpp"
#include "src/tensor/arena.hpp"

namespace holdfast::model {

/// The loss of some micro-batches: a sum over their valid labels, so that it is divided by the step's count
/// once.
struct LossSum {
  tensor::ExactSum sum;
  std::int64_t valid = 0;  ///< labels that are not masked
  void add(const LossSum& other) {
    sum.add(other.sum);
    valid += other.valid;
  }
  double mean() const { return valid == 0 ? 0.0 : sum.value() / static_cast<double>(valid); }
};

enum class Direction { forward, backward };

/// One micro-batch of fixed shape, row by row.
struct Batch {
  std::span<const std::int32_t> inputs;  ///< micro_batch * sequence; below 0: padding
  std::span<const std::int32_t> labels;  ///< as many; below 0: masked
  std::span<const std::int32_t>
      document_start;             ///< as many, see kernels::Documents; empty: one document per row
  std::int64_t first_sample = 0;  ///< global sample of row 0, by which dropout is decided
  std::span<const std::int32_t> sources =
      {};  ///< of each row, below Options::sources; empty: all of the first
};

class Transformer {
 public:
  /// Plans its activations in `arena` (config::activation_rows()), which the caller commits before the first
  /// micro-batch; nothing is allocated later. All references must outlive the transformer.
  Transformer(const config::ModelShape& shape, const Options& options, kernels::Kernels& kernels,
              tensor::Stream& stream, tensor::Arena& arena);
  ~Transformer();

  /// Enqueues forward and backward of one micro-batch: gradients of the *sum* of losses are left in
  /// `weights`. An Error (usage) names a token that is outside the vocabulary. The batch may change when the
  /// call has returned.
  void forward_backward(Weights& weights, const Batch& batch);
  /// The same on micro_batch rows of sequence + 1 tokens: every token is the label of the one before it.
  void forward_backward(Weights& weights, std::span<const std::int32_t> tokens);
  /// Forward only; asks for no gradients.
  void evaluate(Weights& weights, const Batch& batch);
  void evaluate(Weights& weights, std::span<const std::int32_t> tokens);
  /// Of everything enqueued since the last call. Waits for it.
  LossSum take_loss();
  /// The same by source: Options::sources of them.
  void take_losses(std::span<LossSum> losses);

  /// The next micro-batch has other weights than those before it. Of use where something that follows from
  /// them is kept (Options::keeps_copies); the same weights may be anywhere.
  void new_weights();

  /// For 8-bit products with delayed scaling, see Fp8Scaling: scales that hold from now on, and largest
  /// values of all micro-batches (not of evaluations) since the last call, which waits for them.
  void set_scales(std::span<const float> scales);
  void take_amaxes(std::span<std::uint32_t> amaxes);

  /// Called on the caller's thread after each unit of each pass; for heartbeats and fault injection.
  void on_progress(std::function<void(Direction, int unit)> callback);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast::model
