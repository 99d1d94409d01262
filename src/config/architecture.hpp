#pragma once
// What a model of a given shape computes, as lists that everything else follows from: the operations of a
// block, and the matrices between them. The tensors of a model (model_shape.hpp) are those that its
// operations read; the activations of a micro-batch are what they leave; the trainer runs the list forwards
// and backwards, and the decoder forwards. Pure.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/dtype.hpp"
#include "src/config/compute_options.hpp"
#include "src/config/model_shape.hpp"

namespace holdfast::config {

/// What lies in memory between the operations of a micro-batch of T tokens; T rows where nothing else is
/// said.
enum class Activation {
  // Of a block: matrices
  input,             ///< residual that enters it
  attention_normed,  ///< normalised input, then its gradient
  projected,         ///< queries, keys and values before the norms of heads
  qkv,               ///< rotated queries and keys, values
  attended,          ///< attention's output
  attention_out,     ///< of o_proj, before a norm that comes after; then its gradient
  middle,            ///< residual after attention
  mlp_normed,        ///< normalised middle, then its gradient
  gate_up,           ///< gate, then up
  activated,         ///< SwiGLU's output, then its gradient
  mlp_out,           ///< of down_proj, as attention_out
  // Of a block: fp32 numbers for the backward pass
  attention_rms,  ///< inverse rms of the input, or of attention_out: 1 x T
  mlp_rms,        ///< inverse rms of the middle, or of mlp_out: 1 x T
  head_rms,       ///< inverse rms of each head of queries and keys: (heads + kv_heads) x T; or of all: 2 x T
  log_sum,        ///< of attention: heads x T
  // Shared by all blocks
  branch,  ///< what the latest half block adds to the residual; backward, the gradient of the head's and of
           ///< attention's output; and of what a linear layer reads of the residual itself
  output,  ///< what the final norm normalises
  d_residual,  ///< gradient that arrives along the residual; before that begins, the final norm's output
  output_rms,  ///< 1 x T, fp32
  d_qkv,
  d_gate_up,
  logits,  ///< head_chunk tokens x vocabulary, fp32
  cosine,  ///< rotary table: sequence x rotary size / 2
  sine,
  inputs,  ///< tokens, labels, and where their documents begin: 1 x T words of 32 bits
  labels,
  document_start,
  window_start,   ///< likewise: where what a token attends to begins, in blocks with a window
  window_cosine,  ///< rotary table of these blocks, where it is another
  window_sine,
  // Products in 8 bits: room for the operands of one product, and what every operand of every block is scaled
  // by; see src/model/fp8_layers.hpp.
  fp8_left,      ///< tokens x the widest input or output of a linear layer
  fp8_turned,    ///< as fp8_left: its operand transposed
  fp8_right,     ///< the largest of all weights and inputs; of inputs, where copies of weights are kept
  fp8_scale,     ///< 1 x operands, fp32
  fp8_inverse,   ///< operands x inverse_stride, fp32: of each row the first
  fp8_amax,      ///< 1 x operands, bits of fp32: over the micro-batches of a step, with delayed scaling
  fp8_measured,  ///< 1 x operands, bits of fp32: of tensors that were read for their scale
  fp8_weights,   ///< of a block: every weight, and behind each the same transposed, where they are kept
  // Room for one linear layer's adapters; see src/model/adapter_layers.hpp.
  adapter_wide,     ///< chunk x the widest input or output, fp32: a product that more is added to
  adapter_inner,    ///< T x all ranks of a layer: x A^T or dy B in fp32
  adapter_scaled,   ///< the same scaled, in the type of activations
  adapter_kept,     ///< as adapter_scaled: both are needed for the backward pass
  adapter_through,  ///< as adapter_wide, of inputs: what comes back through A, with dropout
  adapter_dropped,  ///< T x the widest input: with dropout
};
constexpr int activations = static_cast<int>(Activation::adapter_dropped) + 1;

/// An operation of a block: it reads `in` and tensors of `role`, and writes `out`.
struct BlockOp {
  enum class Kind {
    norm,        ///< in = the residual so far + branch; out = RMSNorm(in)
    add,         ///< in = out = the residual so far + branch
    norm_after,  ///< out = RMSNorm(in)
    linear,      ///< out = in W^T (+ bias) (+ adapters)
    head_norm,   ///< RMSNorm of each head of queries and keys, or of all at once; values are copied
    rope,        ///< turns the queries and keys of `out` in place
    attention,   ///< causal, with grouped queries
    swiglu,      ///< out = silu(gate) * up
  };
  Kind kind = Kind::linear;
  Activation in = Activation::input, out = Activation::input;
  Role role = Role::qkv;
  std::optional<Activation> numbers = {};  ///< what the backward pass reads besides
  bool windowed = false;  ///< rope and attention, of a block with a window (ModelShape::has_window)
};
/// In the order of the forward pass. A block leaves its result as a sum: middle + branch.
std::vector<BlockOp> block_ops(const ModelShape& shape, int layer);
/// Elements of a row, of a matrix of a block or branch.
std::int64_t width_of(const ModelShape& shape, Activation what);
/// How many numbers of that kind a token has.
std::int64_t numbers_of(const ModelShape& shape, Activation what);

/// A linear layer that is computed together with others that read the same input: rows of their weight.
struct LinearPart {
  Projection projection = Projection::q;
  std::string module;  ///< "self_attn.q_proj": of a block
  std::int64_t rows = 0;
};
std::vector<LinearPart> parts_of(const ModelShape& shape, Role linear);
/// What an operation of a block reads, as Hugging Face names it there, in canonical order.
std::vector<TensorSpec> tensors_of_op(const ModelShape& shape, const BlockOp& op);

/// Of a linear layer y = x W^T in 8 bits: x, W and the gradient of y have scales of their own.
constexpr int fp8_operands_of_linear = 3, fp8_operands_of_block = linears_of_block * fp8_operands_of_linear;
/// Elements of the weight of each linear layer of a block, by role.
std::array<std::int64_t, linears_of_block> linear_elements(const ModelShape& shape);

/// A matrix of a micro-batch and its room.
struct ActivationRow {
  Activation what = Activation::input;
  const char* name = "";
  DType type = DType::fp32;
  std::int64_t rows = 0, cols = 0;
  bool every_block = false;  ///< each block keeps its own from its forward to its backward pass; else there
                             ///< is one, and what a block made is computed again when it is needed
  std::int64_t bytes() const { return rows * cols * bytes_of(type); }
};
/// Bytes that a block keeps per token, in bf16 (d_kv: width of all keys):
///   none       12 d + 4 d_kv + 6 f, 4 per head, 8     all that the backward pass reads
///   selective   8 d + 4 d_kv + 4 f, 4 per head, 8     without both norms' outputs and SwiGLU's
///   attention   6 d + 4 d_kv + 4 f, 8                 and without attention's output and log sums
///   full        2 d                                   its input only
/// All else is computed again, from the same stored inputs by the same kernels, hence with the same
/// bits. A gradient takes the place of its value where the value is not needed any more.
std::vector<ActivationRow> activation_rows(const ModelShape& shape, const ComputeOptions& options);
/// Bytes of all of them, each aligned as an arena does it; without the scratch memory of attention and a few
/// sums.
std::int64_t activation_bytes(const ModelShape& shape, const ComputeOptions& options);

}  // namespace holdfast::config
