#pragma once
// Every operator of training, behind one class per backend. Calls enqueue and return; results are there after
// the stream was synchronized (on the CPU: when the call returns). Bits depend on the arguments only, never
// on the number of threads.
//
// Shapes: T = tokens of a micro-batch = rows * sequence, row by row; d = width, f = inner size of SwiGLU, V =
// vocabulary. Weights lie as out x in, the Hugging Face way: a linear layer is y = x W^T.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/tensor/exact_sum.hpp"
#include "src/tensor/mat.hpp"
#include "src/tensor/stream.hpp"

namespace holdfast::kernels {

using tensor::ConstMat;
using tensor::ExactSum;
using tensor::Mat;
using tensor::Stream;

/// What happens to the old content. add: the whole product first, then one fp32 addition per element.
enum class Write { replace, add };

/// Documents inside a row: start[t] is the place within its row (0 <= start <= place of t) at which the
/// document of token t begins. Attention does not look across it and positions count from it. Null: one
/// document per row.
struct Documents {
  const std::int32_t* start = nullptr;  ///< [T]
};

/// Rotates queries and keys in place, pairs (i, i + head_size / 2) ("rotate half"). Values are left alone.
struct Rope {
  Mat qkv;  ///< T x (heads + 2 kv_heads) * head_size
  int heads = 1, kv_heads = 1, head_size = 2;
  int sequence = 1;       ///< tokens per row
  ConstMat cosine, sine;  ///< at least `sequence` x head_size / 2, see rope_table()
  Documents documents;
  bool backward = false;  ///< rotates by the opposite angle: gradients
};

/// Causal attention with grouped queries: query head h reads key/value head h / (heads / kv_heads); scores
/// are scaled by head_size^-1/2. `qkv` is packed by columns: all query heads, all key heads, all value heads,
/// already rotated.
struct Attention {
  ConstMat qkv;              ///< T x (heads + 2 kv_heads) * head_size
  Mat out;                   ///< T x heads * head_size; read by the backward pass
  float* log_sum = nullptr;  ///< [heads * T]: log of the sum of exp(score); written forward, read backward
  int heads = 1, kv_heads = 1, head_size = 2;
  int sequence = 1;  ///< tokens per row
  Documents documents;
  float* workspace = nullptr;  ///< scratch: Kernels::workspace() elements
};
struct AttentionGradient {
  ConstMat d_out;  ///< T x heads * head_size
  Mat d_qkv;       ///< replaced
};

/// sum = residual + branch; out = sum / rms(sum) * gain.
struct Norm {
  ConstMat residual;             ///< T x d
  ConstMat branch;               ///< T x d, or none: then sum = residual, which is not copied
  Mat sum;                       ///< T x d, may be `residual` itself; unused without a branch
  Mat out;                       ///< T x d
  const float* gain = nullptr;   ///< [d]
  float* inverse_rms = nullptr;  ///< [T], read by the backward pass
  float epsilon = 1e-5f;
};
struct NormGradient {
  ConstMat sum;  ///< what was normalised
  ConstMat d_out;
  const float* gain = nullptr;
  const float* inverse_rms = nullptr;
  Mat d_sum;  ///< the norm's gradient is added to what arrives along the residual; also the gradient of the
              ///< branch
  float* d_gain = nullptr;   ///< [d], replaced
  Write write = Write::add;  ///< replace: nothing arrives along the residual, d_sum is not read
};

/// Head and cross entropy, a chunk of tokens at a time, so that logits of the whole batch never exist.
/// Labels below 0 are masked: no loss, no gradient. Gradients are those of the *sum* of losses.
struct HeadLoss {
  ConstMat hidden;                       ///< T x d
  ConstMat head;                         ///< V x d
  const std::int32_t* labels = nullptr;  ///< [T], below V
  Mat logits;                            ///< scratch: min(T, head_chunk) x V
  Mat d_hidden;                          ///< T x d, replaced; none: evaluation, no gradients
  Mat d_head;                            ///< V x d, replaced
  ExactSum* loss = nullptr;              ///< the sum of losses is added
  std::int64_t* valid = nullptr;         ///< the number of labels that are not masked is added
};
constexpr std::int64_t head_chunk =
    256;  ///< tokens; orders the additions of d_head, so it belongs to the run

/// All that AdamW needs to know about a step, computed once on logical rank 0.
struct StepScalars {
  float lr = 0, lr_decay = 0;  ///< learning rate; lr * weight decay
  float beta1 = 0.9f, beta2 = 0.95f;
  float one_minus_beta1 = 0.1f, one_minus_beta2 = 0.05f;
  float inverse_bias1 = 1, inverse_bias2 = 1;  ///< 1 / (1 - beta^t), t counts from 1
  float epsilon = 1e-8f;
  float gradient_scale = 1;  ///< 1 / (valid tokens of the step) * clip factor
};
/// The scalars of the update number `t` (from 1), rounded once from fp64.
StepScalars step_scalars(double lr, double weight_decay, double beta1, double beta2, double epsilon,
                         std::int64_t t, double gradient_scale);

/// One slice of AdamW. New values may go where the old ones are. Per element, every line rounded as written:
///   g = gradient_scale * gradient
///   m' = beta1 * m + one_minus_beta1 * g;   v' = beta2 * v + one_minus_beta2 * (g * g)
///   p' = p - lr_decay * p (when `decay`);   p'' = p' - lr * ((m' * inverse_bias1) / (sqrt(v' *
///   inverse_bias2) + epsilon))
struct AdamW {
  const float *parameter = nullptr, *m = nullptr, *v = nullptr, *gradient = nullptr;
  float *new_parameter = nullptr, *new_m = nullptr, *new_v = nullptr;
  std::int64_t count = 0;
  bool decay = true;
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  /// What bits depend on besides the arguments: backend, library and its choice of instructions, block sizes.
  /// Ranks of one run, and a run and its checkpoint, must agree on it.
  virtual std::string identity() const = 0;

  /// y (m x n) = op(a) (m x k) * op(b) (k x n); op transposes when its flag is set. y overlaps neither
  /// operand.
  virtual void matmul(Stream&, Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b, Write) = 0;

  virtual void rope(Stream&, const Rope&) = 0;
  /// fp32 elements of scratch that attention of this shape (pointers may be null) needs, forward or backward.
  virtual std::int64_t workspace(const Attention&) const = 0;
  virtual void attention(Stream&, const Attention&) = 0;
  virtual void attention_backward(Stream&, const Attention&, const AttentionGradient&) = 0;

  virtual void norm(Stream&, const Norm&) = 0;
  virtual void norm_backward(Stream&, const NormGradient&) = 0;

  /// gate_up: T x 2f, gate first. out: T x f = silu(gate) * up.
  virtual void swiglu(Stream&, Mat out, ConstMat gate_up) = 0;
  virtual void swiglu_backward(Stream&, Mat d_gate_up, ConstMat d_out, ConstMat gate_up) = 0;

  /// out row t = table row tokens[t]; zeros for a token below 0 (padding).
  virtual void embed(Stream&, Mat out, ConstMat table, const std::int32_t* tokens) = 0;
  /// Adds row t of d_out to row tokens[t] of d_table, in the order of t; replace: onto zeros.
  virtual void embed_backward(Stream&, Mat d_table, ConstMat d_out, const std::int32_t* tokens, Write) = 0;

  virtual void head_loss(Stream&, const HeadLoss&) = 0;

  /// Adds the leaves to `sum` from left to right; `first`: the first leaf is copied, never added to 0.
  virtual void fold(Stream&, float* sum, std::span<const float* const> leaves, std::int64_t count,
                    bool first) = 0;
  /// Adds the squares of x to `sum`, exactly (see ExactSum).
  virtual void sum_squares(Stream&, const float* x, std::int64_t count, ExactSum* sum) = 0;
  virtual void adamw(Stream&, const AdamW&, const StepScalars&) = 0;
};

/// Angle tables for Rope: row p, column i holds cos and sin of p * theta^(-2i / head_size), rounded from
/// fp64.
void rope_table(Mat cosine, Mat sine, double theta);

/// fp32 on the CPU. `threads` 0: what OpenMP offers (OMP_NUM_THREADS). Results are the same for every number.
std::unique_ptr<Kernels> make_cpu_kernels(int threads = 0);

}  // namespace holdfast::kernels
