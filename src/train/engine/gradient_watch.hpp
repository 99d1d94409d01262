#pragma once
// Between the model and the shards for the one micro-batch of a step that is looked at: hashes its gradients
// before anybody reduces them. It changes no bit, unless a fault is to be acted out.
#include <cstdint>
#include <optional>
#include <vector>

#include "src/device/device.hpp"
#include "src/model/weights.hpp"
#include "src/shard/layout.hpp"

namespace holdfast::train {

/// What a drill does to one element of a micro-batch's gradient; `seed` says to which.
struct GradientFault {
  bool nan = false;  ///< it becomes NaN; else one bit of its fraction changes
  std::uint64_t seed = 0;
};

/// All gradients of one micro-batch.
struct GradientsSeen {
  std::uint64_t hash = 0;  ///< equal gradients, equal hash
  bool finite = true;      ///< none of them is NaN or infinite
};

class GradientWatch final : public model::Weights {
 public:
  /// `weights`: where the micro-batch's weights are and its gradients go, as `layout` says. All outlive it.
  GradientWatch(model::Weights& weights, const shard::Layout& layout, device::Device& device,
                tensor::Stream& stream);

  /// The next micro-batch. Not `reduced`: its gradients are hashed and then of no use to anybody.
  void begin(bool reduced, const std::optional<GradientFault>& fault = {});
  /// The gradients of the micro-batch since begin(); waits for it.
  GradientsSeen seen();

  void acquire(int unit) override { weights_.acquire(unit); }
  const void* weight(int stored) override { return weights_.weight(stored); }
  void release(int unit) override { weights_.release(unit); }
  float* gradient(int stored) override { return weights_.gradient(stored); }
  bool adds(int stored) override { return weights_.adds(stored); }
  tensor::DType gradient_type(int stored) override { return weights_.gradient_type(stored); }
  void reduce(int unit) override;

 private:
  void spoil(int unit);
  std::int64_t bytes() const { return static_cast<std::int64_t>(sums_.size() * sizeof sums_[0]); }

  model::Weights& weights_;
  const shard::Layout& layout_;
  kernels::Kernels& kernels_;
  tensor::Stream& stream_;
  bool reduced_ = true;
  std::optional<GradientFault> fault_;
  std::vector<kernels::DigestSums> sums_;  ///< by stored tensor
  kernels::DigestSums* there_ = nullptr;   ///< the same on the device
};

}  // namespace holdfast::train
