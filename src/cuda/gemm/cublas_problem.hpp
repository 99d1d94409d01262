#pragma once
// One product in cuBLASLt's own terms: its descriptors, the algorithms that the library offers for it, and
// the call. Only src/cuda/cublas_*.cpp see this.
#include <cublasLt.h>

#include <optional>
#include <string>
#include <vector>

#include "src/cuda/gemm/choices.hpp"
#include "src/cuda/gemm/product_plan.hpp"

namespace holdfast::cuda {

/// Throws Error (runtime) that names the call and the status.
void cublas_check(cublasStatus_t status, const char* call);

/// "cuBLASLt 13.1.0"
std::string cublas_version();

/// The library's context of the current device.
class CublasHandle {
 public:
  /// Throws Error (runtime) where there is no usable GPU.
  CublasHandle();
  ~CublasHandle() { cublasLtDestroy(handle_); }
  CublasHandle(const CublasHandle&) = delete;
  CublasHandle& operator=(const CublasHandle&) = delete;
  cublasLtHandle_t get() const { return handle_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
};

/// Which algorithms are good enough, and how much memory they may use.
struct CublasRules {
  bool deterministic = true;
  std::int64_t workspace = 0;
};

class CublasProblem {
 public:
  CublasProblem(cublasLtHandle_t handle, const ProductPlan& plan);

  /// What the next call works on; alignments must be the plan's.
  void set_pointers(const ProductPointers& pointers);

  /// At most `most` algorithms that keep the rules, the library's favourite first. Every partial sum is kept
  /// in fp32 until the one rounding: sums over parts of k ("split k") are allowed where the parts are summed
  /// in fp32 in a step of its own; in place, in an order that depends on who comes first, only when the
  /// result is fp32 and the mode is free. fp32 products never take TF32, whatever the environment says.
  /// Pointers must have been set: the bias's alignment counts.
  std::vector<Algorithm> candidates(const CublasRules& rules, int most);

  /// False when the library does not take the algorithm back for this product, or it needs more than the
  /// rules give.
  bool accepts(const Algorithm& algorithm, const CublasRules& rules);

  /// Enqueues; the status is the caller's to judge.
  cublasStatus_t run(StreamHandle stream, const Algorithm& algorithm, void* workspace,
                     std::int64_t workspace_bytes);

  const ProductPlan& plan() const { return plan_; }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value);
  bool keeps_rules(const cublasLtMatmulHeuristicResult_t& result, const CublasRules& rules) const;
  std::uint32_t reductions(const CublasRules& rules) const;

  cublasLtHandle_t handle_;
  ProductPlan plan_;
  ProductPointers pointers_;
  cublasLtMatmulDescOpaque_t operation_{};
  cublasLtMatrixLayoutOpaque_t a_{}, b_{}, d_{};
};

}  // namespace holdfast::cuda
