#pragma once
// cuDNN's backend interface, as little of it as attention needs: a graph of operations on tensors of four
// dimensions, and a plan that an engine made for it.
//
// Plans are made for the properties of a GPU, which a handle has or a text describes. A text needs no GPU:
// what can be built is then known before there is one.
#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::cuda {

/// Throws Error (runtime) with the name of the call and the library's own words unless it succeeded.
void check_cudnn(cudnnStatus_t status, std::string_view call);

/// A descriptor of the backend: made, given attributes, finalized, then constant.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::span<const T> values) {
    set(name, type, static_cast<std::int64_t>(values.size()), values.data());
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, static_cast<const void*>(&value));
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.descriptor_);
  }
  void finalize(std::string_view what);
  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);

  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// Properties of the GPU of a handle.
CudnnDescriptor cudnn_device(cudnnHandle_t handle);
/// The same from cuDNN's own text (JSON) about a GPU.
CudnnDescriptor cudnn_device(std::string_view json);

/// Dimensions or strides, in elements: batch, head, row, column.
using CudnnDims = std::array<std::int64_t, 4>;
/// Strides without gaps.
CudnnDims packed_strides(const CudnnDims& dims);

/// An address that takes part in a run of a plan: device memory, or a constant of the host for scalars.
struct CudnnBinding {
  std::int64_t uid = 0;
  const void* address = nullptr;
};

class CudnnPlan {
 public:
  /// Bytes of device memory that a run uses beside its tensors.
  std::int64_t workspace() const { return workspace_; }
  std::int64_t engine() const { return engine_; }
  /// The engine says that its results may differ between runs.
  bool nondeterministic() const { return nondeterministic_; }
  /// cuDNN's text about the plan: engine, knobs, kernels.
  std::string json() const;
  /// Enqueues the plan on the handle's stream. Exactly the graph's tensors are bound; the list may go away
  /// afterwards.
  void run(cudnnHandle_t handle, std::span<const CudnnBinding> bindings, void* workspace) const;

 private:
  friend class CudnnGraph;
  std::vector<CudnnDescriptor>
      parts_;  ///< what the plan was made of; whether it needs them still is not documented
  CudnnDescriptor plan_;
  std::int64_t workspace_ = 0, engine_ = -1;
  bool nondeterministic_ = false;
};

/// Operations in the order in which they are added. Sums and functions are computed in fp32.
class CudnnGraph {
 public:
  /// A tensor of this graph.
  using Tensor = std::size_t;

  /// Memory that a run binds to `uid`, 1 and above, aligned to 16 bytes.
  Tensor tensor(std::int64_t uid, const CudnnDims& dims, const CudnnDims& strides, cudnnDataType_t type);
  /// One fp32 number, which a run binds to `uid` by an address of the host.
  Tensor scalar(std::int64_t uid);
  /// A result that exists only inside an engine.
  Tensor inner(const CudnnDims& dims, cudnnDataType_t type);
  Tensor inner(const CudnnDims& dims, const CudnnDims& strides, cudnnDataType_t type);

  // Operations. Each returns the tensor that it writes, `y`.
  /// y = a b of every batch and head; where b has fewer heads, neighbours share one.
  Tensor matmul(Tensor a, Tensor b, Tensor y);
  /// Over the axes where y is smaller, neighbours first; in a fixed order.
  Tensor reduce(cudnnReduceTensorOp_t operation, Tensor x, Tensor y);
  /// The same elements under other dimensions and strides.
  Tensor reshape(Tensor x, Tensor y);
  /// y = mode(x).
  Tensor pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y);
  /// y = mode(x, b).
  Tensor pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y);
  /// Comparison x >= b; y is boolean.
  Tensor at_least(Tensor x, Tensor b, Tensor y);
  /// y = condition ? x : otherwise.
  Tensor select(Tensor condition, Tensor x, Tensor otherwise, Tensor y);
  /// The place of every element along an axis (2: row, 3: column) as int32. x gives the shape only.
  Tensor place(Tensor x, int axis, Tensor y);

  /// The plan of the first of the library's suggestions that works; `deterministic`: and always gives the
  /// same bits. An Error (runtime) says why none does; `what`: what the graph computes, for people.
  CudnnPlan plan(const CudnnDescriptor& device, bool deterministic, std::string_view what) &&;

 private:
  Tensor add_tensor(std::int64_t uid, const CudnnDims& dims, const CudnnDims& strides, cudnnDataType_t type,
                    bool inner, bool scalar);
  Tensor add_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t computed, int axis,
                       std::span<const Tensor> inputs, Tensor y);
  void add_operation(CudnnDescriptor operation);

  std::vector<CudnnDescriptor> tensors_, parameters_, operations_;
  std::int64_t next_inner_uid_ = 1'000'000;
};

}  // namespace holdfast::cuda
