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

class GradientWatch final : public model::Weights {
 public:
  /// `weights`: where the micro-batch's weights are and its gradients go, as `layout` says. All outlive it.
  GradientWatch(model::Weights& weights, const shard::Layout& layout, const device::Device& device,
                tensor::Stream& stream);

  /// The next micro-batch. Not `reduced`: its gradients are hashed and then of no use to anybody.
  void begin(bool reduced, const std::optional<GradientFault>& fault = {});
  /// Of all gradients of the micro-batch, fp32: equal gradients, equal hash.
  std::uint64_t hash() const { return hash_; }
  /// None of them is NaN or infinite.
  bool finite() const { return finite_; }

  void acquire(int unit) override { weights_.acquire(unit); }
  const void* weight(int stored) override { return weights_.weight(stored); }
  void release(int unit) override { weights_.release(unit); }
  float* gradient(int stored) override { return weights_.gradient(stored); }
  void reduce(int unit) override;

 private:
  void spoil(int unit);
  /// Also looks for what is not finite.
  std::uint64_t digest(const float* gradient, std::int64_t count);

  model::Weights& weights_;
  const shard::Layout& layout_;
  const bool is_host_;
  tensor::Stream& stream_;
  bool reduced_ = true;
  std::optional<GradientFault> fault_;
  std::uint64_t hash_ = 0;
  bool finite_ = true;
  std::vector<float> room_;  ///< a gradient's way to the host, a part at a time
};

}  // namespace holdfast::train
