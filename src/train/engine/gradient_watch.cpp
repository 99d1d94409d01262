#include "src/train/engine/gradient_watch.hpp"

#include <bit>
#include <limits>

#include "src/base/digest.hpp"

namespace holdfast::train {
namespace {

constexpr int fraction_bits = 23;

}  // namespace

GradientWatch::GradientWatch(model::Weights& weights, const shard::Layout& layout, device::Device& device,
                             tensor::Stream& stream)
    : weights_(weights), layout_(layout), kernels_(device.kernels()), stream_(stream) {
  sums_.resize(layout.slices.size());
  there_ = reinterpret_cast<kernels::DigestSums*>(device.allocate(bytes(), "digests of gradients").data());
}

void GradientWatch::begin(bool reduced, const std::optional<GradientFault>& fault) {
  reduced_ = reduced;
  fault_ = fault;
  stream_.zero(there_, bytes());
}

void GradientWatch::reduce(int unit) {
  if (fault_) spoil(unit);
  for (const int stored : layout_.unit_trained[unit])
    kernels_.digest(stream_, weights_.gradient(stored), DType::fp32, 0, layout_.slices[stored].elements,
                    there_ + stored);
  if (reduced_) weights_.reduce(unit);
}

GradientsSeen GradientWatch::seen() {
  stream_.download(sums_.data(), there_, bytes());
  GradientsSeen out;
  for (const auto& stored_of_unit : layout_.unit_trained)
    for (const int stored : stored_of_unit) {
      const kernels::DigestSums& sums = sums_[stored];
      out.hash += mix64(sums.digest ^ mix64(static_cast<std::uint64_t>(stored) + 1));
      out.finite = out.finite && sums.not_finite == 0;
    }
  return out;
}

void GradientWatch::spoil(int unit) {
  const std::uint64_t seed = fault_->seed;
  std::vector<int> units;  // with something that is trained
  for (int u = 0; u < layout_.units(); ++u)
    if (!layout_.unit_trained[u].empty()) units.push_back(u);
  if (unit != units[seed % units.size()]) return;
  const auto& tensors = layout_.unit_trained[unit];
  const int stored = tensors[mix64(seed) % tensors.size()];
  const auto elements = static_cast<std::uint64_t>(layout_.slices[stored].elements);
  float* const element = weights_.gradient(stored) + mix64(seed + 1) % elements;
  float value = 0;
  stream_.download(&value, element, sizeof value);
  value =
      fault_->nan
          ? std::numeric_limits<float>::quiet_NaN()
          : std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1U << mix64(seed + 2) % fraction_bits);
  stream_.upload(element, &value, sizeof value);
  fault_.reset();
}

}  // namespace holdfast::train
