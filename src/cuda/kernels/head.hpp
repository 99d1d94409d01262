#pragma once
// Cross entropy of rows of logits: the part of kernels::HeadLoss between its products.
#include <cstdint>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// The gradient of rows of fp32 logits, as elements of `type` that begin where the logits of the row began.
inline tensor::ConstMat logit_gradients(const tensor::Mat& logits, kernels::DType type) {
  return {logits.data, type, logits.rows, logits.cols, logits.stride * 4 / bytes_of(type)};
}

/// losses[t] = log sum exp(logits[t]) - logits[t][labels[t]], at least 0 (a NaN stays one). `gradient`: fp32
/// or bf16, the rows become softmax - onehot(label) as logit_gradients() says; evaluation (`with_gradient`
/// false) only reads them. Labels below 0: loss 0, gradient 0. Sums over a row are taken in an order that
/// depends on the number of columns only.
void cross_entropy(Runtime& runtime, StreamHandle stream, const tensor::Mat& logits,
                   const std::int32_t* labels, bool with_gradient, kernels::DType gradient, double* losses);

/// Adds losses[t] to *loss, exactly, and 1 to *valid for every label that is not below 0.
void add_losses(Runtime& runtime, StreamHandle stream, const double* losses, const std::int32_t* labels,
                std::int64_t tokens, tensor::ExactSum* loss, std::int64_t* valid);

}  // namespace holdfast::cuda
