#pragma once
// The loss of a model on a token file: what a run calls its held-out loss, in one process.
#include <cstdint>
#include <functional>

#include "src/data/token_file.hpp"
#include "src/kernels/kernels.hpp"
#include "src/tools/infer/parameters.hpp"

namespace holdfast::infer {

struct Evaluation {
  int sequence = 256;        ///< tokens of a sample
  int micro_batch = 1;       ///< samples that are computed together, as in the run whose bits are wanted
  std::int64_t samples = 0;  ///< windows, drawn as a run's evaluation draws them; 0: all
  bool boundaries = true;    ///< attention and positions stop where documents do
  tensor::DType buffers = tensor::DType::fp32;  ///< of the rope tables
};

struct Loss {
  double mean = 0;          ///< per token that counts as a label, natural logarithm
  std::int64_t tokens = 0;  ///< so many count
  std::int64_t samples = 0;
};

/// `done`: called with samples done and to do. Throws Error (usage) when the file has no sample of this
/// length, tokens outside the model's vocabulary, or nothing that is learned.
Loss evaluate(Parameters& weights, kernels::Kernels& kernels, const data::TokenFile& file,
              const Evaluation& evaluation, const std::function<void(std::int64_t, std::int64_t)>& done = {});

}  // namespace holdfast::infer
