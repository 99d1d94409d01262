// A CudnnGraph collects descriptors of cuDNN's backend: tensors, parameters of operations, operations. Each
// is made, given its attributes and finalized in the call that adds it. plan() joins the operations to a
// graph, asks the library's heuristic which engines it suggests, and goes through them in that order. An
// engine whose results may differ between runs is passed over where bits must be fixed, and so is one from
// which no plan can be finalized; the first that is left becomes the plan, which keeps all descriptors of the
// graph. If none is left, the Error names each engine and why it was passed over.
//
// Every other call of the library that fails is an Error with the name of the call and the library's last
// words. CudnnPlan::run() only binds addresses to the plan and enqueues it.
#include "src/cuda/attention/cudnn_graph.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/error.hpp"

namespace holdfast::cuda {

namespace {

std::string last_words(cudnnStatus_t status) {
  std::array<char, 1024> words{};
  cudnnGetLastErrorString(words.data(), words.size());
  return words[0] == '\0' ? cudnnGetErrorString(status)
                          : fmt::format("{}: {}", cudnnGetErrorString(status), words.data());
}

/// One value of an attribute that can only be asked for.
template <class T>
T value_of(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
           cudnnBackendAttributeType_t type, std::string_view call) {
  T value{};
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(descriptor, name, type, 1, &count, &value), call);
  return value;
}

/// What the library suggests, the fastest by its own estimate first.
std::vector<CudnnDescriptor> suggestions(const CudnnDescriptor& graph, const CudnnDescriptor& device) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  heuristic.finalize("a question for engines");
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
              "cudnnBackendGetAttribute(number of engines)");
  std::vector<CudnnDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i)
    raw.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  if (count > 0)
    check_cudnn(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data()),
                "cudnnBackendGetAttribute(engines)");
  found.erase(found.begin() + count, found.end());
  return found;
}

struct EngineFacts {
  std::int64_t id = -1;
  bool nondeterministic = false;
};
EngineFacts facts_of(const CudnnDescriptor& suggestion) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(suggestion.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
              "cudnnBackendGetAttribute(engine)");
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  check_cudnn(cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                       static_cast<std::int64_t>(notes.size()), &count, notes.data()),
              "cudnnBackendGetAttribute(numerical notes)");
  const auto end = notes.begin() + std::min<std::int64_t>(count, static_cast<std::int64_t>(notes.size()));
  return {value_of<std::int64_t>(raw, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                                 "cudnnBackendGetAttribute(engine's number)"),
          std::find(notes.begin(), end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != end};
}

}  // namespace

void check_cudnn(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(Exit::runtime, fmt::format("cuDNN failed in {}", call), last_words(status));
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}
CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::int64_t count, const void* values) {
  const cudnnStatus_t status = cudnnBackendSetAttribute(descriptor_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS)
    check_cudnn(status, fmt::format("cudnnBackendSetAttribute(attribute {})", static_cast<int>(name)));
}
void CudnnDescriptor::finalize(std::string_view what) {
  const cudnnStatus_t status = cudnnBackendFinalize(descriptor_);
  if (status != CUDNN_STATUS_SUCCESS) check_cudnn(status, fmt::format("cudnnBackendFinalize({})", what));
}

CudnnDescriptor cudnn_device(cudnnHandle_t handle) {
  CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, handle);
  device.finalize("properties of the GPU");
  return device;
}
CudnnDescriptor cudnn_device(std::string_view json) {
  CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::span<const char>(json));
  device.finalize("properties of a GPU from text");
  return device;
}

CudnnDims packed_strides(const CudnnDims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

std::string CudnnPlan::json() const {
  std::int64_t length = 0;
  constexpr auto name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
  check_cudnn(cudnnBackendGetAttribute(plan_.get(), name, CUDNN_TYPE_CHAR, 0, &length, nullptr),
              "cudnnBackendGetAttribute(length of a plan's text)");
  std::string text(length, '\0');
  check_cudnn(cudnnBackendGetAttribute(plan_.get(), name, CUDNN_TYPE_CHAR, length, &length, text.data()),
              "cudnnBackendGetAttribute(a plan's text)");
  return text;
}

void CudnnPlan::run(cudnnHandle_t handle, std::span<const CudnnBinding> bindings, void* workspace) const {
  std::array<std::int64_t, 16> uids{};
  std::array<void*, 16> addresses{};
  expects(bindings.size() <= uids.size(), "a plan has few tensors");
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    uids[i] = bindings[i].uid;
    addresses[i] = const_cast<void*>(bindings[i].address);
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
           std::span<const std::int64_t>(uids).first(bindings.size()));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           std::span<void* const>(addresses).first(bindings.size()));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize("the addresses of a run");
  check_cudnn(cudnnBackendExecute(handle, plan_.get(), pack.get()), "cudnnBackendExecute");
}

CudnnGraph::Tensor CudnnGraph::add_tensor(std::int64_t uid, const CudnnDims& dims, const CudnnDims& strides,
                                          cudnnDataType_t type, bool inner, bool scalar) {
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  constexpr std::int64_t alignment = 16;
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const std::int64_t>(dims));
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const std::int64_t>(strides));
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, inner);
  tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, scalar);
  tensor.finalize("a tensor");
  tensors_.push_back(std::move(tensor));
  return tensors_.size() - 1;
}
CudnnGraph::Tensor CudnnGraph::tensor(std::int64_t uid, const CudnnDims& dims, const CudnnDims& strides,
                                      cudnnDataType_t type) {
  return add_tensor(uid, dims, strides, type, false, false);
}
CudnnGraph::Tensor CudnnGraph::scalar(std::int64_t uid) {
  return add_tensor(uid, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, true);
}
CudnnGraph::Tensor CudnnGraph::inner(const CudnnDims& dims, cudnnDataType_t type) {
  return inner(dims, packed_strides(dims), type);
}
CudnnGraph::Tensor CudnnGraph::inner(const CudnnDims& dims, const CudnnDims& strides, cudnnDataType_t type) {
  return add_tensor(next_inner_uid_++, dims, strides, type, true, false);
}

void CudnnGraph::add_operation(CudnnDescriptor operation) {
  operation.finalize("an operation");
  operations_.push_back(std::move(operation));
}
CudnnGraph::Tensor CudnnGraph::matmul(Tensor a, Tensor b, Tensor y) {
  CudnnDescriptor& how = parameters_.emplace_back(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  how.finalize("a product");
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[a]);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[b]);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[y]);
  add_operation(std::move(operation));
  return y;
}
CudnnGraph::Tensor CudnnGraph::reduce(cudnnReduceTensorOp_t mode, Tensor x, Tensor y) {
  CudnnDescriptor& how = parameters_.emplace_back(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  how.set(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, true);
  how.finalize("a reduction");
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[x]);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[y]);
  add_operation(std::move(operation));
  return y;
}
CudnnGraph::Tensor CudnnGraph::reshape(Tensor x, Tensor y) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[x]);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[y]);
  add_operation(std::move(operation));
  return y;
}
CudnnGraph::Tensor CudnnGraph::add_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t computed, int axis,
                                             std::span<const Tensor> inputs, Tensor y) {
  CudnnDescriptor& how = parameters_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, computed);
  if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, std::int64_t{axis});
  how.finalize("a function of elements");
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  constexpr std::array names{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                             CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  for (std::size_t i = 0; i < inputs.size(); ++i) operation.set(names[i], tensors_[inputs[i]]);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[y]);
  add_operation(std::move(operation));
  return y;
}
CudnnGraph::Tensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y) {
  return add_pointwise(mode, CUDNN_DATA_FLOAT, -1, std::array{x}, y);
}
CudnnGraph::Tensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y) {
  return add_pointwise(mode, CUDNN_DATA_FLOAT, -1, std::array{x, b}, y);
}
CudnnGraph::Tensor CudnnGraph::at_least(Tensor x, Tensor b, Tensor y) {
  return add_pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, std::array{x, b}, y);
}
CudnnGraph::Tensor CudnnGraph::select(Tensor condition, Tensor x, Tensor otherwise, Tensor y) {
  return add_pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1,
                       std::array{x, otherwise, condition}, y);
}
CudnnGraph::Tensor CudnnGraph::place(Tensor x, int axis, Tensor y) {
  return add_pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis, std::array{x}, y);
}

CudnnPlan CudnnGraph::plan(const CudnnDescriptor& device, bool deterministic, std::string_view what) && {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& operation : operations_) raw.push_back(operation.get());
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            std::span<const cudnnBackendDescriptor_t>(raw));
  graph.finalize(fmt::format("the graph of {}", what));

  std::string reasons;
  for (CudnnDescriptor& suggestion : suggestions(graph, device)) {
    const EngineFacts engine = facts_of(suggestion);
    const auto passed_over = [&](std::string_view why) {
      reasons += fmt::format("{}engine {}: {}", reasons.empty() ? "" : "; ", engine.id, why);
    };
    if (deterministic && engine.nondeterministic) {
      passed_over("does not always give the same bits");
      continue;
    }
    CudnnPlan made;
    made.engine_ = engine.id;
    made.nondeterministic_ = engine.nondeterministic;
    made.plan_ = CudnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    made.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, suggestion);
    made.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
    const cudnnStatus_t status = cudnnBackendFinalize(made.plan_.get());
    if (status != CUDNN_STATUS_SUCCESS) {
      passed_over(last_words(status));
      continue;
    }
    made.workspace_ = value_of<std::int64_t>(made.plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                             CUDNN_TYPE_INT64, "cudnnBackendGetAttribute(workspace)");
    for (auto* list : {&tensors_, &parameters_, &operations_})
      std::move(list->begin(), list->end(), std::back_inserter(made.parts_));
    made.parts_.push_back(std::move(graph));
    made.parts_.push_back(std::move(suggestion));
    return made;
  }
  throw Error(Exit::runtime, fmt::format("cuDNN has no engine for {}", what),
              reasons.empty() ? "it suggests none for this GPU" : reasons);
}

}  // namespace holdfast::cuda
