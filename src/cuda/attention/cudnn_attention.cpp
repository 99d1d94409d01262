// workspace() comes first for every shape: it makes the plans of both passes over rows of one document and
// notes how much scratch memory they take. forward() and backward() then look up the plans for their own
// strides and documents, make those that are new, and run the parts of the call one after another on its
// stream, each with the addresses that forward_bindings() or backward_bindings() computes. Plans are kept
// until the engine ends.
//
// The constructor refuses a GPU without bf16, a cuDNN that is too old, and one for another CUDA. A matrix of
// another shape or alignment is a defect of the caller (expects). A plan that wants more scratch memory than
// workspace() has promised is an Error before anything of that call runs. Gradients of rows of several
// documents may have no engine on older GPUs; plans() says so.
#include "src/cuda/attention/cudnn_attention.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::cuda {

namespace {

/// Earlier ones need a padding mask for sequences that are no multiple of 128, and want other scratch memory
/// zeroed.
constexpr std::size_t oldest_cudnn = 91600;

/// With documents, plans have wanted exactly as much as without.
constexpr std::int64_t document_reserve = 64 << 10;
/// The library asks for no alignment in writing; this is what allocations of CUDA have. The caller's is 64.
constexpr std::int64_t workspace_alignment = 256;
std::byte* aligned(std::byte* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return memory + (workspace_alignment - address % workspace_alignment) % workspace_alignment;
}

std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

template <class M>
const std::byte* at(const M& matrix, const Placement& placement) {
  return matrix.data + placement.offset * tensor::bytes_of(matrix.type);
}

void check_matrix(const tensor::ConstMat& m, std::int64_t rows, std::int64_t cols) {
  expects(m.rows == rows && m.cols == cols && m.type == tensor::DType::bf16,
          "attention: a matrix's shape and type");
  expects(m.stride >= cols && m.stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(m.data) % 16 == 0,
          "attention: matrices begin and rows follow at multiples of 16 bytes");
}
void check_call(const AttentionShape& shape, const kernels::Attention& call) {
  check_supported(shape, call.qkv.type);
  check_matrix(call.qkv, shape.tokens(), (shape.heads + 2 * shape.kv_heads) * shape.head_size);
  check_matrix(call.out, shape.tokens(), shape.heads * shape.head_size);
  expects(call.log_sum != nullptr && call.workspace != nullptr, "attention: log_sum and workspace are given");
}

AttentionScalars scalars_of(const kernels::Attention& call) {
  AttentionScalars scalars;
  scalars.scale = static_cast<float>(call.score_scale());
  return scalars;
}

}  // namespace

AttentionPlans::AttentionPlans(AttentionPass pass, const AttentionShape& shape,
                               const AttentionStrides& strides, bool deterministic,
                               const CudnnDescriptor& device) {
  const bool forward = pass == AttentionPass::forward;
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes;
  for (const AttentionPart& part : forward ? forward_parts(shape) : backward_parts(shape, deterministic)) {
    const PartLayout layout(shape, part);
    const std::pair size{part.rows, part.kv_heads};
    const auto known = std::find(sizes.begin(), sizes.end(), size);
    parts_.push_back({layout, forward ? PartScratch{} : backward_scratch(shape, part, deterministic),
                      as_size(known - sizes.begin())});
    if (known != sizes.end()) continue;
    sizes.push_back(size);
    plans_.push_back(forward ? attention_forward_plan(layout, strides, device)
                             : attention_backward_plan(layout, strides, deterministic, device));
  }
}

std::int64_t AttentionPlans::workspace() const {
  std::int64_t bytes = 0;
  for (const Part& part : parts_)
    bytes = std::max(bytes, part.scratch.library + plans_[part.plan].workspace());
  return bytes;
}

std::vector<CudnnBinding> forward_bindings(const PartLayout& layout, const kernels::Attention& call,
                                           const AttentionScalars& scalars) {
  const std::int64_t qkv = call.qkv.stride;
  std::vector<CudnnBinding> bindings{{uid_queries, at(call.qkv, layout.queries(qkv))},
                                     {uid_keys, at(call.qkv, layout.keys(qkv))},
                                     {uid_values, at(call.qkv, layout.values(qkv))},
                                     {uid_out, at(call.out, layout.outputs(call.out.stride))},
                                     {uid_log_sum, call.log_sum + layout.log_sums().offset}};
  if (layout.shape().documents)
    bindings.push_back({uid_starts, call.documents.start + layout.starts().offset});
  bindings.push_back({uid_scale, &scalars.scale});
  bindings.push_back({uid_masked, &scalars.masked});
  return bindings;
}

std::vector<CudnnBinding> backward_bindings(const PartLayout& layout, const PartScratch& scratch,
                                            bool deterministic, const kernels::Attention& call,
                                            const kernels::AttentionGradient& gradient, std::byte* workspace,
                                            const AttentionScalars& scalars) {
  const std::int64_t d_qkv = gradient.d_qkv.stride;
  std::vector<CudnnBinding> bindings = forward_bindings(layout, call, scalars);
  bindings.push_back({uid_d_out, at(gradient.d_out, layout.outputs(gradient.d_out.stride))});
  bindings.push_back({uid_d_queries, at(gradient.d_qkv, layout.queries(d_qkv))});
  bindings.push_back({uid_d_keys, at(gradient.d_qkv, layout.keys(d_qkv))});
  bindings.push_back({uid_d_values, at(gradient.d_qkv, layout.values(d_qkv))});
  bindings.push_back({uid_one, &scalars.one});
  bindings.push_back({uid_mean, workspace + scratch.mean});
  if (!deterministic) bindings.push_back({uid_d_query_sums, workspace + scratch.d_query_sums});
  return bindings;
}

void check_library(std::size_t version, std::size_t cuda) {
  if (version < oldest_cudnn)
    throw Error(Exit::usage, fmt::format("cuDNN {} is too old", version_text(version)),
                fmt::format("attention needs {}", version_text(oldest_cudnn)), "install a newer one?");
  if (cuda / 1000 != CUDART_VERSION / 1000)
    throw Error(Exit::usage, fmt::format("cuDNN {} is for CUDA {}", version_text(version), cuda / 1000),
                fmt::format("this backend is for CUDA {}", CUDART_VERSION / 1000),
                "is another libcudnn.so.9 found first?");
}

CudnnAttention::CudnnAttention(Runtime& runtime, bool deterministic) : deterministic_(deterministic) {
  if (runtime.facts().major < 8)
    throw Error(Exit::usage, fmt::format("attention does not run on {}", runtime.facts().name),
                fmt::format("bf16 needs compute capability 8.0, it has {}.{}", runtime.facts().major,
                            runtime.facts().minor),
                "use device = \"cpu\" or another GPU?");
  check_library(cudnnGetVersion(), cudnnGetCudartVersion());
  check_cudnn(cudnnCreate(&handle_), "cudnnCreate");
  try {
    device_ = cudnn_device(handle_);
  } catch (...) {
    cudnnDestroy(handle_);
    throw;
  }
}
CudnnAttention::~CudnnAttention() {
  plans_.clear();
  cudnnDestroy(handle_);
}

const AttentionPlans& CudnnAttention::plans(AttentionPass pass, const AttentionShape& shape,
                                            const AttentionStrides& strides) {
  const std::tuple key{pass, shape, strides};
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  try {
    return plans_.try_emplace(key, pass, shape, strides, deterministic_, device_).first->second;
  } catch (const Error& error) {
    if (!shape.documents) throw;
    throw Error(error.exit(), error.problem(), error.why(),
                "before Hopper, cuDNN has no gradients for rows of several documents, or longer than the "
                "model's window: use another GPU, or rows of one document and no longer?");
  }
}

const AttentionPlans& CudnnAttention::plans_for_call(AttentionPass pass, const AttentionShape& shape,
                                                     const AttentionStrides& strides) {
  AttentionShape plain = shape;
  plain.documents = false;
  const auto said = workspaces_.find(plain);
  expects(said != workspaces_.end(), "attention: the workspace's size was asked for");
  const AttentionPlans& known = plans(pass, shape, strides);
  if (known.workspace() > said->second)
    throw Error(Exit::runtime, "cuDNN wants more scratch memory for attention than it said",
                fmt::format("{} bytes with these documents and strides, {} without", known.workspace(),
                            said->second));
  return known;
}

std::int64_t CudnnAttention::workspace(const kernels::Attention& call) {
  AttentionShape shape = shape_of(call);
  check_supported(shape, call.qkv.type);
  shape.documents = false;
  const std::int64_t width = shape.heads * shape.head_size,
                     packed = width + 2 * shape.kv_heads * shape.head_size;
  const std::int64_t bytes =
      document_reserve +
      std::max(plans(AttentionPass::forward, shape, {packed, width, 0, 0}).workspace(),
               plans(AttentionPass::backward, shape, {packed, width, width, packed}).workspace());
  workspaces_[shape] = bytes;
  return bytes + workspace_alignment;
}

void CudnnAttention::forward(StreamHandle stream, const kernels::Attention& call) {
  const AttentionShape shape = shape_of(call);
  check_call(shape, call);
  const AttentionPlans& known =
      plans_for_call(AttentionPass::forward, shape, {call.qkv.stride, call.out.stride, 0, 0});
  const AttentionScalars scalars = scalars_of(call);
  check_cudnn(cudnnSetStream(handle_, reinterpret_cast<cudaStream_t>(stream)), "cudnnSetStream");
  std::byte* workspace = aligned(call.workspace);
  for (const AttentionPlans::Part& part : known.parts())
    known.plans()[part.plan].run(handle_, forward_bindings(part.layout, call, scalars),
                                 workspace + part.scratch.library);
}

void CudnnAttention::backward(StreamHandle stream, const kernels::Attention& call,
                              const kernels::AttentionGradient& gradient) {
  const AttentionShape shape = shape_of(call);
  check_call(shape, call);
  check_matrix(gradient.d_out, call.out.rows, call.out.cols);
  check_matrix(gradient.d_qkv, call.qkv.rows, call.qkv.cols);
  const AttentionPlans& known =
      plans_for_call(AttentionPass::backward, shape,
                     {call.qkv.stride, call.out.stride, gradient.d_out.stride, gradient.d_qkv.stride});
  const AttentionScalars scalars = scalars_of(call);
  check_cudnn(cudnnSetStream(handle_, reinterpret_cast<cudaStream_t>(stream)), "cudnnSetStream");
  std::byte* workspace = aligned(call.workspace);
  for (const AttentionPlans::Part& part : known.parts())
    known.plans()[part.plan].run(
        handle_,
        backward_bindings(part.layout, part.scratch, deterministic_, call, gradient, workspace, scalars),
        workspace + part.scratch.library);
}

std::string CudnnAttention::identity() const {
  return fmt::format(
      "cuDNN {} attention 1, {}", version_text(cudnnGetVersion()),
      deterministic_ ? "gradients of scores stored" : "gradients of queries added as they come");
}

std::unique_ptr<AttentionEngine> make_cudnn_attention(Runtime& runtime, bool deterministic) {
  return std::make_unique<CudnnAttention>(runtime, deterministic);
}

}  // namespace holdfast::cuda
