#pragma once
// Linear layers for a few rows: one token of each sequence of a batch. Weights are read once for all rows,
// which is what decoding costs; and a row's result does not depend on how many others there are, so that a
// text does not depend on what is written beside it.
#include "src/tensor/mat.hpp"

namespace holdfast::infer {

using tensor::ConstMat;
using tensor::Mat;

/// y (m x n) = x (m x k) w (n x k)^T (+ bias, 1 x n). x, w and bias are of one type; y is of that type or
/// fp32. Each sum is fp32, in the 16 lanes of kernels::dot(), and rounded once with its bias.
void multiply_rows(Mat y, ConstMat x, ConstMat w, ConstMat bias = {});

}  // namespace holdfast::infer
