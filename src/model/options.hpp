#pragma once
// How a model is computed, apart from its shape.
#include "src/config/run_config.hpp"
#include "src/tensor/dtype.hpp"

namespace holdfast::model {

struct Options {
  int micro_batch = 1, sequence = 1;                ///< rows and tokens per row of a micro-batch
  tensor::DType activations = tensor::DType::fp32;  ///< of weights, activations and their gradients
  tensor::DType buffers = tensor::DType::fp32;      ///< of the rope tables
  config::ActivationCheckpointing activation_checkpointing =
      config::ActivationCheckpointing::none;  ///< changes memory and time, never a bit
  config::Products products =
      config::Products::bf16;  ///< fp8: of the blocks' linear layers; needs bf16 activations
  config::Scaling scaling = config::Scaling::delayed;  ///< of fp8
  std::uint64_t seed = 1;                              ///< of what dropout leaves out
  int sources = 1;  ///< of data, whose losses are summed apart: all together are the same number

  std::int64_t tokens() const { return std::int64_t{micro_batch} * sequence; }
};

}  // namespace holdfast::model
