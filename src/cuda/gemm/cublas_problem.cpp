#include "src/cuda/gemm/cublas_problem.hpp"

#include <fmt/core.h>

#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::cuda {

namespace {
cudaDataType_t type_of(DType type) {
  switch (type) {
    case DType::fp32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::e4m3:
      return CUDA_R_8F_E4M3;
    case DType::e5m2:
      return CUDA_R_8F_E5M2;
  }
  expects(false, "an element type is one of four");
  return CUDA_R_32F;
}

cublasLtMatrixLayoutOpaque_t layout_of(const PlanMatrix& matrix) {
  cublasLtMatrixLayoutOpaque_t layout{};
  cublas_check(
      cublasLtMatrixLayoutInit(&layout, type_of(matrix.type), static_cast<std::uint64_t>(matrix.rows),
                               static_cast<std::uint64_t>(matrix.cols), matrix.leading),
      "cublasLtMatrixLayoutInit");
  return layout;
}

cublasLtMatmulAlgo_t native(const Algorithm& algorithm) {
  cublasLtMatmulAlgo_t out;
  static_assert(sizeof out.data == sizeof algorithm.state);
  std::memcpy(out.data, algorithm.state.data(), sizeof out.data);
  return out;
}

/// An attribute that an algorithm does not have stays as it is.
template <class Stored>
void read(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute, int& value) {
  Stored stored{};
  std::size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &stored, sizeof stored, &written) ==
      CUBLAS_STATUS_SUCCESS)
    value = static_cast<int>(stored);
}

Algorithm described(const cublasLtMatmulHeuristicResult_t& result) {
  Algorithm out;
  read<std::int32_t>(result.algo, CUBLASLT_ALGO_CONFIG_ID, out.algorithm);
  read<std::uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_TILE_ID, out.tile);
  read<std::uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, out.stages);
  read<std::int32_t>(result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, out.split_k);
  read<std::uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, out.reduction);
  read<std::uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, out.swizzle);
  read<std::uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, out.custom);
  read<std::uint16_t>(result.algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, out.inner_shape);
  read<std::uint16_t>(result.algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, out.cluster);
  out.workspace = static_cast<std::int64_t>(result.workspaceSize);
  std::memcpy(out.state.data(), result.algo.data, sizeof result.algo.data);
  return out;
}

template <class T>
void prefer(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t attribute,
            T value) {
  cublas_check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
}
}  // namespace

void cublas_check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(Exit::runtime, fmt::format("{} failed", call),
              fmt::format("{}: {}", cublasLtGetStatusName(status), cublasLtGetStatusString(status)));
}

std::string cublas_version() {
  const std::size_t version = cublasLtGetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

CublasHandle::CublasHandle() {
  const cublasStatus_t status = cublasLtCreate(&handle_);
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(
      Exit::runtime, "cuBLASLt cannot start, so matrices cannot be multiplied on a GPU",
      fmt::format("{}: {}; {} was built for CUDA {}", cublasLtGetStatusName(status),
                  cublasLtGetStatusString(status), cublas_version(), cublasLtGetCudartVersion() / 1000),
      "Is there a GPU with free memory and a driver for this version of CUDA?");
}

CublasProblem::CublasProblem(cublasLtHandle_t handle, const ProductPlan& plan)
    : handle_(handle), plan_(plan), a_(layout_of(plan.a)), b_(layout_of(plan.b)), d_(layout_of(plan.d)) {
  cublas_check(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
  set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{plan.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N});
  set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{plan.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N});
  set(CUBLASLT_MATMUL_DESC_EPILOGUE,
      std::uint32_t{plan.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT});
  if (plan.bias) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{type_of(plan.bias_type)});
  if (plan.fp8()) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{0});
}

template <class T>
void CublasProblem::set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
  cublas_check(cublasLtMatmulDescSetAttribute(&operation_, attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}

void CublasProblem::set_pointers(const ProductPointers& pointers) {
  pointers_ = pointers;
  if (plan_.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.bias);
  if (plan_.fp8()) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(pointers.scale_a));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(pointers.scale_b));
  }
}

std::uint32_t CublasProblem::reductions(const CublasRules& rules) const {
  const bool in_place = !rules.deterministic && plan_.d.type == DType::fp32;
  return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
         (in_place ? std::uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE} : 0u);
}

bool CublasProblem::keeps_rules(const cublasLtMatmulHeuristicResult_t& result,
                                const CublasRules& rules) const {
  if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > as_size(rules.workspace)) return false;
  const Algorithm algorithm = described(result);
  if ((static_cast<std::uint32_t>(algorithm.reduction) & ~reductions(rules)) != 0) return false;
  std::uint64_t numerics = 0;
  std::size_t written = 0;
  const cublasStatus_t known = cublasLtMatmulAlgoCapGetAttribute(
      &result.algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &numerics, sizeof numerics, &written);
  if (known != CUBLAS_STATUS_SUCCESS || plan_.a.type != DType::fp32) return true;
  constexpr std::uint64_t narrower = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 |
                                     CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF |
                                     CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F;
  return (numerics & narrower) == 0;
}

std::vector<Algorithm> CublasProblem::candidates(const CublasRules& rules, int most) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  cublas_check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(rules.workspace));
  prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions(rules));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
         static_cast<std::uint32_t>(plan_.a.alignment));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
         static_cast<std::uint32_t>(plan_.b.alignment));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
         static_cast<std::uint32_t>(plan_.d.alignment));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
         static_cast<std::uint32_t>(plan_.d.alignment));
  std::vector<cublasLtMatmulHeuristicResult_t> results(most);
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, &operation_, &a_, &b_, &d_, &d_,
                                                               &preference, most, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED)
    found = 0;  // no algorithm: the caller knows what that means
  else
    cublas_check(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<Algorithm> good;
  for (int i = 0; i < found; ++i)
    if (keeps_rules(results[i], rules)) good.push_back(described(results[i]));
  return good;
}

bool CublasProblem::accepts(const Algorithm& algorithm, const CublasRules& rules) {
  cublasLtMatmulHeuristicResult_t result{};
  result.algo = native(algorithm);
  result.state = cublasLtMatmulAlgoCheck(handle_, &operation_, &a_, &b_, &d_, &d_, &result.algo, &result);
  return keeps_rules(result, rules);
}

cublasStatus_t CublasProblem::run(StreamHandle stream, const Algorithm& algorithm, void* workspace,
                                  std::int64_t workspace_bytes) {
  static constexpr float one = 1, zero = 0;
  const cublasLtMatmulAlgo_t algo = native(algorithm);
  return cublasLtMatmul(handle_, &operation_, &one, pointers_.a, &a_, pointers_.b, &b_,
                        plan_.add ? &one : &zero, pointers_.d, &d_, pointers_.d, &d_, &algo, workspace,
                        as_size(workspace_bytes),
                        reinterpret_cast<cudaStream_t>(static_cast<std::uintptr_t>(stream)));
}

}  // namespace holdfast::cuda
