#pragma once
// Delayed scaling of 8-bit operands ("FP8 formats for deep learning", section 5; NVIDIA's Transformer
// Engine): what an operand is multiplied by before it is rounded follows from the largest values that it had
// in the last steps, over all micro-batches of all ranks. So it is known before the tensor is, and the same
// on every rank and in every layout. It is a part of the training state. Pure.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/config/architecture.hpp"
#include "src/config/run_config.hpp"
#include "src/tensor/dtype.hpp"

namespace holdfast::model {

/// Operands of a linear layer y = x W^T that have scales of their own.
enum class Fp8Role { x, weight, d_y };
constexpr int fp8_roles_of_linear = config::fp8_operands_of_linear;
/// Of a block.
constexpr int fp8_roles = config::fp8_operands_of_block;
/// 4 bits of exponent for values, 5 for gradients, which span more magnitudes ("hybrid").
constexpr tensor::DType type_of(Fp8Role role) {
  return role == Fp8Role::d_y ? tensor::DType::e5m2 : tensor::DType::e4m3;
}

class Fp8Scaling {
 public:
  Fp8Scaling(int layers, const config::Fp8& settings);

  /// Of every role of every block, block by block. 0: not known, because nothing was seen in the last steps
  /// but zeros, infinities or NaNs: then the tensor itself has to be looked at.
  std::span<const float> scales() const { return scales_; }
  /// An optimizer step was done. `amaxes`: of every role, the fp32 bits of its largest |x| in that step.
  void advance(std::span<const std::uint32_t> amaxes);

  /// All that it remembers, for checkpoints; "" for nothing.
  std::string text() const;
  /// Takes over what text() gave, of an object with any settings. An Error (runtime) when it did not, or for
  /// another model.
  void load(const std::string& text);

 private:
  void rescale();

  std::size_t roles_, history_;
  int margin_;
  std::vector<std::uint8_t> sizes_;  ///< fp8_size() of every role, step after step, the oldest first
  std::vector<float> scales_;
};

}  // namespace holdfast::model
