#pragma once
// How a model is computed, apart from its shape.
#include "src/base/dtype.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

constexpr DType type_of(Precision precision) {
  return precision == Precision::bf16 ? DType::bf16 : DType::fp32;
}

struct ComputeOptions {
  int micro_batch = 1, sequence = 1;  ///< rows and tokens per row of a micro-batch
  DType activations = DType::fp32;    ///< of weights, activations and their gradients
  DType buffers = DType::fp32;        ///< of the rope tables
  ActivationCheckpointing activation_checkpointing =
      ActivationCheckpointing::none;   ///< changes memory and time, never a bit
  Products products = Products::bf16;  ///< fp8: of the blocks' linear layers; needs bf16 activations
  Scaling scaling = Scaling::delayed;  ///< of fp8
  std::uint64_t seed = 1;              ///< of what dropout leaves out
  int sources = 1;            ///< of data, whose losses are summed apart: all together are the same number
  bool keeps_copies = false;  ///< fp8: weights are rounded once until they change; changes no bit

  std::int64_t tokens() const { return std::int64_t{micro_batch} * sequence; }
};

/// 8-bit copies of weights are kept where all the weights they are made of are kept: for a step.
inline bool keeps_copies(const RunConfig& c) {
  const bool all = c.shard.keep_gathered == "all" || c.shard.strategy == Strategy::shard_grad_op;
  return c.precision.products == Products::fp8 && c.shard.keep_across_micro_steps && all;
}

/// A run whose data has so many sources computes with these.
inline ComputeOptions compute_options_of(const RunConfig& c, int sources = 1) {
  return {c.train.micro_batch,
          c.train.sequence,
          type_of(c.precision.parameters),
          type_of(c.precision.buffers),
          c.train.activation_checkpointing,
          c.precision.products,
          c.fp8.scaling,
          c.train.seed,
          sources,
          keeps_copies(c)};
}

}  // namespace holdfast::config
