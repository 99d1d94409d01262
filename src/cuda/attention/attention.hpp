#pragma once
// Attention on the GPU, whoever computes it.
#include <cstdint>
#include <memory>
#include <string>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

class AttentionEngine {
 public:
  virtual ~AttentionEngine() = default;
  /// See kernels::Kernels::workspace(); forward and backward. What grows with the square of the sequence
  /// takes at most 256 MiB where one key/value head of one row does; asked for before the first call of a
  /// shape.
  virtual std::int64_t workspace(const kernels::Attention& shape) = 0;
  virtual void forward(StreamHandle stream, const kernels::Attention& call) = 0;
  virtual void backward(StreamHandle stream, const kernels::Attention& call,
                        const kernels::AttentionGradient& gradient) = 0;
  virtual std::string identity() const = 0;
};

/// cuDNN. bf16 only: an Error (usage) says so for fp32.
std::unique_ptr<AttentionEngine> make_cudnn_attention(Runtime& runtime, bool deterministic);

}  // namespace holdfast::cuda
