#pragma once
// Products of matrices on the GPU, whoever computes them.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

using tensor::ConstMat;
using tensor::DType;
using tensor::Mat;

/// y (m x n) = op(a) * op(b) (+ bias), see kernels::Kernels::matmul() and matmul_fp8().
struct Product {
  Mat y;
  ConstMat a, b;
  bool transpose_a = false, transpose_b = false;
  bool add = false;  ///< to y, fp32: in the product's own epilogue
  ConstMat bias;
  const float *inverse_a = nullptr, *inverse_b = nullptr;  ///< of 8-bit operands, aligned to 16 bytes
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual void run(StreamHandle stream, const Product& product) = 0;
  /// Library, version, rules; without the choices.
  virtual std::string identity() const = 0;
  // See device::Device.
  virtual void note(const Product& product) = 0;
  virtual std::string choices(std::string_view known) = 0;
  virtual void use_choices(std::string_view text) = 0;
};

/// cuBLASLt. `deterministic`: only algorithms whose result is the same at every run.
std::unique_ptr<Gemm> make_cublas_gemm(Runtime& runtime, bool deterministic);

}  // namespace holdfast::cuda
