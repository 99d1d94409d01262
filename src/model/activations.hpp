#pragma once
// The memory of a micro-batch: what a block keeps from its forward to its backward pass, and the room that
// blocks share. Bytes that a block keeps per token, in bf16 (d_kv: width of all keys):
//   none       12 d + 4 d_kv + 6 f, 4 per head, 8     all that the backward pass reads
//   selective   8 d + 4 d_kv + 4 f, 4 per head, 8     without both norms' outputs and SwiGLU's
//   attention   6 d + 4 d_kv + 4 f, 8                 and without attention's output and log sums
//   full        2 d                                   its input only
// What is not kept is shared by all blocks and computed again, from the same stored inputs by the same
// kernels, hence with the same bits. A gradient takes the place of its value where the value is not needed
// any more.
#include <cstdint>
#include <string>
#include <vector>

#include "src/config/model_shape.hpp"
#include "src/model/options.hpp"
#include "src/tensor/arena.hpp"
#include "src/tensor/exact_sum.hpp"
#include "src/tensor/mat.hpp"

namespace holdfast::model {

/// A planned matrix; becomes a Mat once the arena is committed.
struct Buffer {
  tensor::Arena::Piece<std::byte> piece;
  tensor::DType type = tensor::DType::fp32;
  std::int64_t rows = 0, cols = 0;
};

/// Of one block; T x ... where nothing else is said.
struct BlockBuffers {
  Buffer input;             ///< residual that enters the block: d
  Buffer attention_normed;  ///< normalised input, then its gradient: d
  Buffer qkv;               ///< rotated queries and keys, values: d + 2 d_kv
  Buffer attended;          ///< d
  Buffer log_sum;           ///< heads x T, fp32
  Buffer middle;            ///< residual after attention: d
  Buffer mlp_normed;        ///< normalised middle, then its gradient: d
  Buffer gate_up;           ///< 2 f
  Buffer activated;         ///< SwiGLU's output, then its gradient: f
  Buffer inverse_rms;       ///< 2 x T, fp32: attention norm, mlp norm
};

/// Products in 8 bits: room for the operands of one product, which all blocks share, and what every operand
/// of every block is scaled by; see fp8_layers.hpp.
struct Fp8Buffers {
  Buffer left;      ///< tokens x the widest input or output of a linear layer
  Buffer turned;    ///< as `left`: its operand transposed
  Buffer right;     ///< the largest of all weights and inputs
  Buffer scale;     ///< 1 x roles, fp32
  Buffer inverse;   ///< roles x inverse_stride, fp32: of each row the first
  Buffer amax;      ///< 1 x roles, bits of fp32: over the micro-batches of a step, with delayed scaling
  Buffer measured;  ///< 1 x roles, bits of fp32: of tensors that were read for their scale
};

/// Room for one linear layer's adapters, which all layers share; see adapter_layers.hpp.
struct AdapterBuffers {
  Buffer wide;     ///< chunk x the widest input or output, fp32: a product that more is added to
  Buffer through;  ///< as `wide`: what comes back through A, with dropout
  Buffer inner,
      scaled;      ///< T x all ranks of a layer: x A^T or dy B in fp32; scaled, in the type of activations
  Buffer kept;     ///< as `scaled`: both are needed for the backward pass
  Buffer dropped;  ///< T x the widest input: with dropout
};

class Activations {
 public:
  /// Plans everything in `arena`. `attention_workspace`: bytes, see kernels::Kernels::workspace().
  Activations(const config::ModelShape& shape, const Options& options, std::int64_t attention_workspace,
              tensor::Arena& arena);

  tensor::Mat mat(const Buffer& b) { return tensor::dense(arena_.at(b.piece), b.type, b.rows, b.cols); }
  /// Of an fp32 buffer.
  float* floats(const Buffer& b) { return mat(b).row<float>(0); }
  std::byte* workspace() { return arena_.at(workspace_); }
  std::int32_t* inputs() { return arena_.at(inputs_); }
  std::int32_t* labels() { return arena_.at(labels_); }
  std::int32_t* document_start() { return arena_.at(document_start_); }
  std::int64_t* first_sample() { return arena_.at(first_sample_); }
  tensor::ExactSum* loss() { return arena_.at(loss_); }
  std::int64_t* valid() { return arena_.at(valid_); }

  std::vector<BlockBuffers> blocks;
  Buffer branch;      ///< T x d: what the latest half block adds to the residual; backward, the gradient of
                      ///< the head's and of attention's output
  Buffer output;      ///< T x d: what the final norm normalises
  Buffer d_residual;  ///< T x d: gradient that arrives along the residual
  Buffer output_normed;       ///< where d_residual is: dead when that begins
  Buffer output_inverse_rms;  ///< 1 x T, fp32
  Buffer d_qkv, d_gate_up;
  Buffer logits;            ///< chunk x V, fp32
  Buffer cosine, sine;      ///< sequence x head_size / 2
  Fp8Buffers fp8;           ///< nothing without 8-bit products
  AdapterBuffers adapters;  ///< nothing without adapters

 private:
  Buffer plan(const std::string& name, tensor::DType type, std::int64_t rows, std::int64_t cols);
  void plan_blocks(const config::ModelShape& shape, const Options& options);
  void plan_fp8(const config::ModelShape& shape, const Options& options);
  void plan_adapters(const config::ModelShape& shape, const Options& options);

  tensor::Arena& arena_;
  tensor::Arena::Piece<std::byte> workspace_;
  tensor::Arena::Piece<std::int32_t> inputs_, labels_, document_start_;
  tensor::Arena::Piece<tensor::ExactSum> loss_;
  tensor::Arena::Piece<std::int64_t> valid_, first_sample_;
};

/// Bytes of an arena that holds nothing but these activations. Pure.
std::int64_t activation_bytes(const config::ModelShape& shape, const Options& options,
                              std::int64_t attention_workspace);

}  // namespace holdfast::model
