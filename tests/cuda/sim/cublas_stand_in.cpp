#include "tests/cuda/sim/cublas_stand_in.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstring>
#include <map>
#include <new>
#include <string>

#include "tests/cuda/gemm/column_major.hpp"
#include "tests/cuda/sim/finding.hpp"

namespace holdfast::cuda::sim {

CublasStandIn& cublas_stand_in() {
  static CublasStandIn stand_in;
  return stand_in;
}

namespace {
static_assert(reduction_in_place == CUBLASLT_REDUCTION_SCHEME_INPLACE &&
              reduction_in_fp32 == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE &&
              reduction_in_output_type == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE &&
              inputs_as_tf32 == CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32);

CublasStandIn& self() { return cublas_stand_in(); }
double virtual_microseconds = 0;  ///< launches advance it

/// What lies in the library's opaque structs.
struct Operation {
  std::int32_t compute, scale_type, transpose_a, transpose_b, bias_type;
  std::uint32_t epilogue;
  std::int8_t fast;
  const void *bias, *scale_a, *scale_b;
};
struct Layout {
  std::int32_t type;
  std::int64_t rows, cols, leading;
};
struct Preference {
  std::uint64_t workspace;
  std::uint32_t reductions, a, b, c, d;
};
/// `hidden` is what no attribute shows.
struct Algo {
  std::uint64_t id, hidden;
};
constexpr std::uint64_t secret = 0x5ec2e7;

template <class T, class Opaque>
T& inside(Opaque* opaque) {
  static_assert(sizeof(T) <= sizeof(opaque->data));
  return *std::launder(static_cast<T*>(static_cast<void*>(opaque->data)));
}
template <class T, class Opaque>
const T& inside(const Opaque* opaque) {
  return *std::launder(static_cast<const T*>(static_cast<const void*>(opaque->data)));
}

template <class T>
cublasStatus_t take(T& field, const void* value, std::size_t size) {
  if (value == nullptr || size != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, size);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t give(T value, void* to, std::size_t size, std::size_t* written) {
  if (size != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, &value, size);
  *written = size;
  return CUBLAS_STATUS_SUCCESS;
}

DType type_of(std::int32_t type) {
  switch (type) {
    case CUDA_R_32F:
      return DType::fp32;
    case CUDA_R_16BF:
      return DType::bf16;
    case CUDA_R_8F_E4M3:
      return DType::e4m3;
    case CUDA_R_8F_E5M2:
      return DType::e5m2;
    default:
      throw Finding("cuBLASLt: an element type that no product here has");
  }
}

const OfferedAlgorithm* offer_of(const cublasLtMatmulAlgo_t& algo) {
  const Algo& known = inside<Algo>(&algo);
  if (known.hidden != secret) return nullptr;
  for (const OfferedAlgorithm& offer : self().offers)
    if (static_cast<std::uint64_t>(offer.id) == known.id) return &offer;
  return nullptr;
}

void demand(bool condition, const char* what) {
  if (!condition) throw Finding(std::string("cuBLASLt: ") + what);
}

/// The documentation's table of types, and what it asks of 8-bit products.
ProductPlan checked_plan(const Operation& op, const Layout& a, const Layout& b, const Layout& d) {
  demand(op.compute == CUBLAS_COMPUTE_32F && op.scale_type == CUDA_R_32F, "sums and scales are fp32");
  const auto matrix = [](const Layout& l) {
    return PlanMatrix{type_of(l.type), l.rows, l.cols, l.leading, 0};
  };
  ProductPlan plan;
  plan.a = matrix(a);
  plan.b = matrix(b);
  plan.d = matrix(d);
  plan.transpose_a = op.transpose_a == CUBLAS_OP_T;
  plan.transpose_b = op.transpose_b == CUBLAS_OP_T;
  for (const PlanMatrix& m : {plan.a, plan.b, plan.d}) demand(m.leading >= m.rows, "leading dimensions");
  demand((plan.transpose_a ? plan.a.cols : plan.a.rows) == plan.d.rows, "rows of D");
  demand((plan.transpose_b ? plan.b.rows : plan.b.cols) == plan.d.cols, "columns of D");
  demand((plan.transpose_b ? plan.b.cols : plan.b.rows) == plan.inner(), "inner sizes");
  plan.bias = op.epilogue == CUBLASLT_EPILOGUE_BIAS;
  demand(plan.bias || op.epilogue == CUBLASLT_EPILOGUE_DEFAULT, "an epilogue of bias or none");
  if (plan.bias) plan.bias_type = op.bias_type < 0 ? plan.d.type : type_of(op.bias_type);
  demand(op.fast == 0, "no fast accumulation");
  if (plan.fp8()) {
    demand(is_fp8(plan.b.type) && !(plan.a.type == DType::e5m2 && plan.b.type == DType::e5m2), "8-bit types");
    demand(plan.transpose_a && !plan.transpose_b, "8-bit products are TN");
    demand(plan.a.leading % 16 == 0 && plan.b.leading % 16 == 0 && plan.inner() % 16 == 0 &&
               plan.d.rows % 16 == 0,
           "8-bit sizes are multiples of 16");
    demand(!plan.bias || plan.bias_type == DType::bf16, "8-bit products have a bf16 bias");
  } else {
    demand(plan.a.type == plan.b.type && (plan.d.type == plan.a.type || plan.d.type == DType::fp32), "types");
    demand(!plan.bias || plan.bias_type == plan.d.type, "a bias of D's type");
  }
  return plan;
}

struct Moment {
  StreamHandle stream{};
  double microseconds = 0;
};
std::map<cudaEvent_t, Moment> moments;
}  // namespace
}  // namespace holdfast::cuda::sim

using namespace holdfast::cuda;
using namespace holdfast::cuda::sim;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int context = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&context);
  return self().starts ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_INITIALIZED ? "CUBLAS_STATUS_NOT_INITIALIZED" : "CUBLAS_STATUS_OTHER";
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "the stand-in was told so"; }
std::size_t cublasLtGetVersion() { return self().version; }
std::size_t cublasLtGetCudartVersion() { return 13000; }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, std::size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  demand(size == sizeof *desc, "size of a descriptor");
  inside<Operation>(desc) = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, -1, CUBLASLT_EPILOGUE_DEFAULT,
                             0,       {},    {},          {}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t size) {
  auto& op = inside<Operation>(desc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(op.transpose_a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(op.transpose_b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(op.epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(op.bias, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(op.bias_type, value, size);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return take(op.scale_a, value, size);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return take(op.scale_b, value, size);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return take(op.fast, value, size);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t size,
                                                 cudaDataType type, std::uint64_t rows, std::uint64_t cols,
                                                 std::int64_t leading) {
  demand(size == sizeof *layout, "size of a layout");
  inside<Layout>(layout) = {type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols), leading};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     std::size_t size) {
  demand(size == sizeof *preference, "size of a preference");
  inside<Preference>(preference) = {0, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t size) {
  auto& p = inside<Preference>(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(p.workspace, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(p.reductions, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(p.a, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(p.b, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(p.c, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(p.d, value, size);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

/// All that the test offers: it is the caller who must keep his rules.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  ++self().heuristics;
  const auto& op = inside<Operation>(desc);
  demand(c == d, "C is D");
  const ProductPlan plan = checked_plan(op, inside<Layout>(a), inside<Layout>(b), inside<Layout>(d));
  demand(!plan.bias || op.bias != nullptr, "the heuristic sees a bias's alignment");
  const auto& p = inside<Preference>(preference);
  self().reduction_mask = p.reductions;
  self().alignment_a = p.a;
  self().alignment_b = p.b;
  self().alignment_d = p.d;
  demand(p.c == p.d, "C is aligned as D");
  *found = 0;
  for (const OfferedAlgorithm& offer : self().offers) {
    if (*found == most) break;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    inside<Algo>(&result.algo) = {static_cast<std::uint64_t>(offer.id), secret};
    result.workspaceSize = offer.workspace;
    result.state = offer.supported ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  ++self().checks;
  checked_plan(inside<Operation>(desc), inside<Layout>(a), inside<Layout>(b), inside<Layout>(d));
  const OfferedAlgorithm* offer = offer_of(*algo);
  if (offer == nullptr || !offer->supported) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->workspaceSize = offer->workspace;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, std::size_t size, std::size_t* written) {
  const OfferedAlgorithm* offer = offer_of(*algo);
  if (offer == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return give(std::int32_t{offer->id}, value, size, written);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return give(std::int32_t{offer->split_k}, value, size, written);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      return give(offer->reduction, value, size, written);
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return give(std::uint16_t{3}, value, size, written);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                 cublasLtMatmulAlgoCapAttributes_t attribute, void* value,
                                                 std::size_t size, std::size_t* written) {
  const OfferedAlgorithm* offer = offer_of(*algo);
  if (offer == nullptr || attribute != CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS)
    return CUBLAS_STATUS_INVALID_VALUE;
  return give(offer->numerics, value, size, written);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  const OfferedAlgorithm* offer = offer_of(*algo);
  demand(offer != nullptr, "an algorithm that the library has given");
  demand(workspace_bytes >= offer->workspace && workspace != nullptr, "scratch for the algorithm");
  const auto& op = inside<Operation>(desc);
  ProductPlan plan =
      checked_plan(op, inside<Layout>(a_layout), inside<Layout>(b_layout), inside<Layout>(d_layout));
  demand(*static_cast<const float*>(alpha) == 1 && c == d, "alpha is 1 and C is D");
  plan.add = *static_cast<const float*>(beta) != 0;
  demand(plan.fp8() == (op.scale_a != nullptr) && plan.fp8() == (op.scale_b != nullptr),
         "scales for 8 bits only");
  self().launched.push_back(offer->id);
  self().workspace = workspace;
  if (!offer->launches) return CUBLAS_STATUS_EXECUTION_FAILED;
  virtual_microseconds += offer->microseconds;
  const ProductPointers at{
      a, b, d, op.bias, static_cast<const float*>(op.scale_a), static_cast<const float*>(op.scale_b)};
  std::vector<Access> accesses = {reads(a, extent_bytes(plan.a)), reads(b, extent_bytes(plan.b)),
                                  writes(d, extent_bytes(plan.d)),
                                  writes(workspace, static_cast<std::int64_t>(workspace_bytes))};
  for (const void* scale : {op.scale_a, op.scale_b})
    if (scale != nullptr) accesses.push_back(reads(scale, sizeof(float)));
  if (plan.bias) accesses.push_back(reads(op.bias, plan.d.rows * bytes_of(plan.bias_type)));
  static int calls = 0;
  const int noise = (offer->steady ? 0 : ++calls) + (plan.add && !offer->adds_whole ? 1 : 0);
  enqueue_host_work(StreamHandle{reinterpret_cast<std::uintptr_t>(stream)}, "cublasLtMatmul", accesses, [=] {
    test::column_major_product(plan, at);
    static_cast<std::byte*>(d)[0] ^= static_cast<std::byte>(noise);
  });
  return CUBLAS_STATUS_SUCCESS;
}

cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 4096, cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "of the stand-in"; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  run_stream(StreamHandle{reinterpret_cast<std::uintptr_t>(stream)});
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  static std::uintptr_t next = 0;
  *event = reinterpret_cast<cudaEvent_t>(++next);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return moments.erase(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  moments[event] = {StreamHandle{reinterpret_cast<std::uintptr_t>(stream)}, virtual_microseconds};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return run_stream(moments.at(event).stream), cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = static_cast<float>((moments.at(to).microseconds - moments.at(from).microseconds) / 1000);
  return cudaSuccess;
}
}
