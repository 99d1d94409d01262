#pragma once
// Every operator of training, behind one class per backend. Calls enqueue and return; results are there after
// an event recorded behind them has passed (on the CPU: when the call returns). Bits depend on the arguments
// only, never on the number of threads.
//
// Types: activations, their gradients and weights are fp32 or bf16, all matrices of one call alike where
// nothing else is said; every sum and every function is computed in fp32 and rounded once, to the type of the
// result. Gradients of weights are fp32.
//
// Shapes: T = tokens of a micro-batch = rows * sequence, row by row; d = width, f = inner size of SwiGLU, V =
// vocabulary. Weights lie as out x in, the Hugging Face way: a linear layer is y = x W^T.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/base/as_size.hpp"
#include "src/base/block_code.hpp"
#include "src/base/kernel_sizes.hpp"
#include "src/base/ordered_sum.hpp"
#include "src/base/rope_type.hpp"
#include "src/tensor/exact_sum.hpp"
#include "src/tensor/mat.hpp"
#include "src/tensor/stream.hpp"

namespace holdfast::kernels {

using holdfast::head_chunk;
using holdfast::inverse_stride;
using tensor::ConstMat;
using tensor::DType;
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

/// The result of one pass over elements.
struct DigestSums {
  std::uint64_t digest = 0;      ///< as digest_part() sums it
  std::uint64_t not_finite = 0;  ///< how many are NaN or infinite
};

/// Terms that are added on a stack of sums, each addition rounded to fp32.
struct OrderedSum {
  std::span<const void* const> terms;  ///< arrays of `type`
  DType type = DType::fp32;
  std::span<const Addition> additions;  ///< of each term
  /// Where the sums of the stack lie, the lowest first, as many as are there before, behind the last addition
  /// or between passes (sums_in_memory). What is above the last sum is undefined.
  std::span<float* const> sums;
  int before = 0;
  std::int64_t count = 0;  ///< elements
  /// Where the lowest sum goes behind the last addition; null: where it lies. May be a term.
  float* result = nullptr;
};

/// An 8-bit copy of a matrix: every element times `scale`, rounded to the nearest (ties to even) and
/// saturated at the largest finite value of the type; a NaN stays one.
struct Quantize {
  Mat out;                        ///< rows x cols, e4m3 or e5m2; none: not wanted
  Mat transposed;                 ///< cols x rows, the same values; none: not wanted
  const float* scale = nullptr;   ///< [1], a power of two
  std::uint32_t* amax = nullptr;  ///< [1]: bits of the largest |x| so far (as fp32; a NaN is larger than
                                  ///< all); grows. Null: not recorded
};

/// Rotates queries and keys in place, pairs (i, i + half) of each head ("rotate half"), where the tables have
/// `half` columns. Values, and elements of a head from 2 half on, are left alone.
struct Rope {
  Mat qkv;  ///< T x (heads + 2 kv_heads) * head_size
  int heads = 1, kv_heads = 1, head_size = 2;
  int sequence = 1;       ///< tokens per row
  ConstMat cosine, sine;  ///< at least `sequence` x half, of the buffer type; see rope_table()
  Documents documents;
  bool backward = false;  ///< rotates by the opposite angle: gradients
};

/// Causal attention with grouped queries: query head h reads key/value head h / (heads / kv_heads); scores
/// are multiplied by `scale`. `qkv` is packed by columns: all query heads, all key heads, all value heads,
/// already rotated.
struct Attention {
  ConstMat qkv;              ///< T x (heads + 2 kv_heads) * head_size
  Mat out;                   ///< T x heads * head_size; read by the backward pass
  float* log_sum = nullptr;  ///< [heads * T]: log of the sum of exp(score); written forward, read backward
  int heads = 1, kv_heads = 1, head_size = 2;
  int sequence = 1;  ///< tokens per row
  Documents documents;
  std::byte* workspace = nullptr;  ///< scratch: Kernels::workspace() bytes, aligned to 64
  double scale = 0;                ///< 0: head_size^-1/2
  double score_scale() const { return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_size)); }
};
struct AttentionGradient {
  ConstMat d_out;  ///< T x heads * head_size
  Mat d_qkv;       ///< replaced; for the rotated queries and keys
};

/// sum = residual + branch; out = sum / rms(sum) * gain. The sum is rounded before it is normalised.
struct Norm {
  ConstMat residual;             ///< T x d
  ConstMat branch;               ///< T x d, or none: then sum = residual, which is not copied
  Mat sum;                       ///< T x d, may be `residual` itself; unused without a branch
  Mat out;                       ///< T x d
  ConstMat gain;                 ///< 1 x d
  float* inverse_rms = nullptr;  ///< [T], read by the backward pass
  float epsilon = 1e-5f;
  const Quantize* quantize = nullptr;  ///< also of `out`, as if called behind
};
struct NormGradient {
  ConstMat sum;  ///< what was normalised
  ConstMat d_out;
  ConstMat gain;  ///< 1 x d
  const float* inverse_rms = nullptr;
  Mat d_sum;  ///< the norm's gradient is added to what arrives along the residual; also the gradient of the
              ///< branch. With Write::replace it may be `sum` or `d_out` itself
  float* d_gain = nullptr;   ///< [d], replaced; null: frozen
  Write write = Write::add;  ///< replace: nothing arrives along the residual, d_sum is not read
};

/// Each head of queries and each head of keys normalised by itself, as Norm has it; values are copied.
struct HeadNorm {
  ConstMat in;                   ///< T x (heads + 2 kv_heads) * head_size
  Mat out;                       ///< as `in`, apart from it
  ConstMat q_gain, k_gain;       ///< 1 x head_size
  float* inverse_rms = nullptr;  ///< [T * (heads + kv_heads)], read by the backward pass
  int heads = 1, kv_heads = 1, head_size = 2;
  float epsilon = 1e-5f;
};
struct HeadNormGradient {
  Mat d_qkv;                                       ///< of `out`, becomes that of `in`
  float *d_q_gain = nullptr, *d_k_gain = nullptr;  ///< [head_size], replaced; null: frozen
};

/// Head and cross entropy, a chunk of tokens at a time, so that logits of the whole batch never exist.
/// Labels below 0 are masked: no loss, no gradient. Gradients are those of the *sum* of losses.
struct HeadLoss {
  ConstMat hidden;                       ///< T x d
  ConstMat head;                         ///< V x d
  const std::int32_t* labels = nullptr;  ///< [T], below V
  Mat logits;                            ///< scratch, fp32: min(T, head_chunk) x V
  Mat d_hidden;                          ///< T x d, replaced; none: evaluation, no gradients
  Mat d_head;                            ///< V x d, fp32, replaced; none: frozen
  ExactSum* loss = nullptr;              ///< sums to which losses are added, exactly
  std::int64_t* valid = nullptr;         ///< as many: numbers of labels that are not masked
  /// In host memory, for each of sum_of.size() equal parts of the tokens which of the sums is its; empty: all
  /// go to the first one.
  std::span<const std::int32_t> sum_of = {};

  /// Tokens from one on whose losses go to one sum.
  struct Part {
    std::int64_t tokens = 0, sum = 0;
  };
  /// That which begins with `token` and ends before `end`.
  Part part_at(std::int64_t token, std::int64_t end) const {
    if (sum_of.empty()) return {end - token, 0};
    const std::int64_t size = hidden.rows / static_cast<std::int64_t>(sum_of.size()), at = token / size;
    return {std::min(end, (at + 1) * size) - token, sum_of[as_size(at)]};
  }
};
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

/// One slice of AdamW. New values may go where the old ones are. Per element, every line rounded as written
/// (a bf16 moment is rounded when it is stored, after the parameter has used it unrounded):
///   g = gradient_scale * gradient
///   m' = beta1 * m + one_minus_beta1 * g;   v' = beta2 * v + one_minus_beta2 * (g * g)
///   p' = p - lr_decay * p;   p'' = p' - lr * ((m' * inverse_bias1) / (sqrt(v' * inverse_bias2) + epsilon))
struct AdamW {
  const float *parameter = nullptr, *gradient = nullptr;
  const void *m = nullptr, *v = nullptr;  ///< of type `moments`
  float* new_parameter = nullptr;
  void *new_m = nullptr, *new_v = nullptr;
  DType moments = DType::fp32;
  std::int64_t count = 0;
};

/// out = in * factor where an element stays, else 0; rounded once to the type of `out`. Element c of a token
/// goes when word c % 4 of tensor::philox({c / 4, place of the token in its row, low and high half of its
/// row's global sample}, {low and high half of `key`}) is below `threshold`: whatever is computed again, on
/// whichever rank, leaves out the same.
struct Dropout {
  Mat out;  ///< T x n; may be `in` itself
  ConstMat in;
  float factor = 1;
  std::uint32_t threshold = 0;                 ///< probability * 2^32; 0: all stay, nothing below is read
  std::uint64_t key = 0;                       ///< of the run and the layer
  const std::int64_t* first_sample = nullptr;  ///< [1]: global sample of row 0
  int sequence = 1;                            ///< tokens per row
  std::int64_t first_token = 0;                ///< of `in`, counted over all rows
  Write write = Write::replace;                ///< add: to an fp32 `out`
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  /// What bits depend on besides the arguments: backend, library and its choice of instructions, block sizes.
  /// Ranks of one run, and a run and its checkpoint, must agree on it. `type`: of the activations.
  virtual std::string identity(DType type) const = 0;

  /// y (m x n) = op(a) (m x k) * op(b) (k x n) (+ bias, 1 x n, added to every row before the one rounding);
  /// op transposes when its flag is set. y overlaps no operand. a, b and bias are of one type; y is of that
  /// type or fp32, and fp32 with Write::add.
  virtual void matmul(Stream&, Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b, Write,
                      ConstMat bias = {}) = 0;
  /// out[c] = sum of x[t][c] over t, in fixed blocks of tokens: the gradient of a bias.
  virtual void column_sums(Stream&, float* out, ConstMat x) = 0;

  // Products of 8-bit operands. Values and scales are exact in fp32; the sum over k is rounded as the
  // backend's bf16 products round it.
  virtual void quantize(Stream&, ConstMat x, const Quantize&) = 0;
  /// *amax = max(*amax, bits of the largest |x|), see Quantize.
  virtual void amax(Stream&, ConstMat x, std::uint32_t* amax) = 0;
  /// scale[i] = largest power of two with amax[i] * scale[i] <= the largest value of `type` (amax 0 or not
  /// finite: 1), and inverse[i] = 1 / scale[i], for `count` of them. See fp8_scale().
  virtual void scales(Stream&, float* scale, float* inverse, const std::uint32_t* amax, DType type,
                      int count) = 0;
  /// y (m x n) = inverse_a * inverse_b * a (m x k) * b (n x k)^T (+ bias): both operands lie along k. a and b
  /// are e4m3 or e5m2, not both e5m2; y and bias as in matmul(). Inverses lie on boundaries of 16 bytes, see
  /// inverse_stride.
  virtual void matmul_fp8(Stream&, Mat y, ConstMat a, ConstMat b, const float* inverse_a,
                          const float* inverse_b, Write, ConstMat bias = {}) = 0;

  virtual void rope(Stream&, const Rope&) = 0;
  /// Bytes of scratch that attention of this shape (pointers may be null; the type of `qkv` counts) needs,
  /// forward or backward.
  virtual std::int64_t workspace(const Attention&) const = 0;
  virtual void attention(Stream&, const Attention&) = 0;
  virtual void attention_backward(Stream&, const Attention&, const AttentionGradient&) = 0;

  /// out = a + b, rounded once; `out` may be one of them.
  virtual void add(Stream&, Mat out, ConstMat a, ConstMat b) = 0;
  virtual void norm(Stream&, const Norm&) = 0;
  virtual void norm_backward(Stream&, const NormGradient&) = 0;
  virtual void head_norm(Stream&, const HeadNorm&) = 0;
  /// `out` is not read.
  virtual void head_norm_backward(Stream&, const HeadNorm&, const HeadNormGradient&) = 0;

  /// gate_up: T x 2f, gate first. out: T x f = silu(gate) * up.
  /// `quantize`: also of `out`, as if called behind.
  virtual void swiglu(Stream&, Mat out, ConstMat gate_up, const Quantize* quantize = nullptr) = 0;
  virtual void swiglu_backward(Stream&, Mat d_gate_up, ConstMat d_out, ConstMat gate_up) = 0;

  virtual void dropout(Stream&, const Dropout&) = 0;

  /// out row t = table row tokens[t]; zeros for a token below 0 (padding).
  virtual void embed(Stream&, Mat out, ConstMat table, const std::int32_t* tokens) = 0;
  /// Adds row t of d_out to row tokens[t] of d_table (fp32), in the order of t; replace: onto zeros.
  virtual void embed_backward(Stream&, Mat d_table, ConstMat d_out, const std::int32_t* tokens, Write) = 0;

  virtual void head_loss(Stream&, const HeadLoss&) = 0;

  /// out = in, rounded to `to`. May be done in place when `to` is not wider than `from`.
  virtual void convert(Stream&, void* out, DType to, const void* in, DType from, std::int64_t count) = 0;
  /// out = the elements that `codes` and `scales` stand for, rounded to `to`. `count` is a multiple of
  /// code_block. See src/base/block_code.hpp.
  virtual void decode_blocks(Stream&, void* out, DType to, BlockCode code, const std::byte* codes,
                             const float* scales, std::int64_t count) = 0;
  virtual void add_up(Stream&, const OrderedSum&) = 0;
  /// Adds the squares of x to `sum`, exactly (see ExactSum).
  virtual void sum_squares(Stream&, const float* x, std::int64_t count, ExactSum* sum) = 0;
  /// Adds to `sums` what elements [first, first + count) of a tensor, fp32 or bf16, contribute: x[0] is
  /// element `first`.
  virtual void digest(Stream&, const void* x, DType type, std::int64_t first, std::int64_t count,
                      DigestSums* sums) = 0;
  virtual void adamw(Stream&, const AdamW&, const StepScalars&) = 0;
};

/// The stretching of rotary wavelengths: pairs that turn more than `high_frequency` times in
/// `original_sequence` tokens are kept, those that turn less than `low_frequency` times are slowed down by
/// `factor` (of type linear: all are). factor 1: none.
struct RopeScaling {
  double factor = 1, low_frequency = 1, high_frequency = 4, original_sequence = 8192;
  RopeType type = RopeType::llama3;
  double magnitude = 1;                  ///< of (cos, sin)
  std::span<const double> factors = {};  ///< of type longrope: what each pair is slowed down by
};
/// Angle tables for Rope: row p, column i of `half` holds cos and sin of p * theta^(-i / half), stretched,
/// times the magnitude, rounded once from fp64 to the type of the table.
void rope_table(Mat cosine, Mat sine, double theta, const RopeScaling& scaling = {});

/// fp32 and bf16 on the CPU. `threads` 0: what OpenMP offers (OMP_NUM_THREADS). Results are the same for
/// every number.
std::unique_ptr<Kernels> make_cpu_kernels(int threads = 0);

}  // namespace holdfast::kernels
