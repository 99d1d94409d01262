#pragma once
// Attention on the simulator: the CPU's, part by part as the plan for cuDNN cuts it, with every tensor where
// the plan says that it lies. So what the real engine hands to cuDNN is tested but for cuDNN's own
// arithmetic.
#include <cstdint>
#include <memory>
#include <string>

#include "src/cuda/attention/attention.hpp"
#include "src/cuda/attention/attention_plan.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda::sim {

class ReferenceAttention final : public AttentionEngine {
 public:
  /// `budget`: see backward_parts().
  explicit ReferenceAttention(SimRuntime& runtime, bool deterministic = true,
                              std::int64_t budget = score_budget);

  /// As much as the real engine needs, estimated: all of it is overwritten by every pass.
  std::int64_t workspace(const kernels::Attention& shape) override;
  void forward(StreamHandle stream, const kernels::Attention& call) override;
  void backward(StreamHandle stream, const kernels::Attention& call,
                const kernels::AttentionGradient& gradient) override;
  std::string identity() const override;

 private:
  std::int64_t scratch_bytes(const AttentionShape& shape, const AttentionPart& part) const;
  void enqueue(StreamHandle stream, const char* name, const PartLayout& layout,
               const kernels::Attention& call, const kernels::AttentionGradient* gradient);

  SimRuntime& runtime_;
  bool deterministic_;
  std::int64_t budget_;
  std::shared_ptr<kernels::Kernels> kernels_;  ///< shared with operations that have not run yet
};

}  // namespace holdfast::cuda::sim
