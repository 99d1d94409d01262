#pragma once
// Attention by cuDNN: plans for every shape that occurs, made when it first occurs or its workspace is asked
// for, and their runs on the caller's matrices.
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "src/cuda/attention/attention.hpp"
#include "src/cuda/attention/attention_graph.hpp"

namespace holdfast::cuda {

enum class AttentionPass { forward, backward };

/// The parts of one pass over one shape. Parts of the same size share a plan.
class AttentionPlans {
 public:
  AttentionPlans(AttentionPass pass, const AttentionShape& shape, const AttentionStrides& strides,
                 bool deterministic, const CudnnDescriptor& device);

  struct Part {
    PartLayout layout;
    PartScratch scratch;
    std::size_t plan;
  };
  const std::vector<Part>& parts() const { return parts_; }
  const std::vector<CudnnPlan>& plans() const { return plans_; }
  /// Bytes for the largest part.
  std::int64_t workspace() const;

 private:
  std::vector<Part> parts_;
  std::vector<CudnnPlan> plans_;
};

/// `version` and `cuda`: what cudnnGetVersion() and cudnnGetCudartVersion() say. The library has the same
/// name for every CUDA. Throws Error (usage) when it is too old, or for another major release than this
/// backend.
void check_library(std::size_t version, std::size_t cuda);

class CudnnAttention : public AttentionEngine {
 public:
  CudnnAttention(Runtime& runtime, bool deterministic);
  ~CudnnAttention() override;
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Makes the plans of both passes over rows of one document each. With documents they take as much, and are
  /// made when the first call comes; that one is never captured.
  std::int64_t workspace(const kernels::Attention& shape) override;
  void forward(StreamHandle stream, const kernels::Attention& call) override;
  void backward(StreamHandle stream, const kernels::Attention& call,
                const kernels::AttentionGradient& gradient) override;
  std::string identity() const override;

 private:
  const AttentionPlans& plans(AttentionPass pass, const AttentionShape& shape,
                              const AttentionStrides& strides);
  /// The same for a call, which has as much workspace as workspace() said.
  const AttentionPlans& plans_for_call(AttentionPass pass, const AttentionShape& shape,
                                       const AttentionStrides& strides);

  bool deterministic_;
  cudnnHandle_t handle_ = nullptr;
  CudnnDescriptor device_;
  std::map<std::tuple<AttentionPass, AttentionShape, AttentionStrides>, AttentionPlans> plans_;
  std::map<AttentionShape, std::int64_t> workspaces_;  ///< as workspace() said, by shapes without documents
};

/// Scalars of a run, which must outlive the call that enqueues it.
struct AttentionScalars {
  float scale = 1, masked = masked_score, one = 1;
};
/// What the plan of a part is run with.
std::vector<CudnnBinding> forward_bindings(const PartLayout& layout, const kernels::Attention& call,
                                           const AttentionScalars& scalars);
/// `workspace`: aligned to 256.
std::vector<CudnnBinding> backward_bindings(const PartLayout& layout, const PartScratch& scratch,
                                            bool deterministic, const kernels::Attention& call,
                                            const kernels::AttentionGradient& gradient, std::byte* workspace,
                                            const AttentionScalars& scalars);

}  // namespace holdfast::cuda
