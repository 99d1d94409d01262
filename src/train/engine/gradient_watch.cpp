#include "src/train/engine/gradient_watch.hpp"

#include "src/base/digest.hpp"

namespace holdfast::train {
namespace {

constexpr int fraction_bits = 23, fraction_bits_of_bf16 = 7;

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
    kernels_.digest(stream_, weights_.gradient(stored), weights_.gradient_type(stored), 0,
                    layout_.slices[stored].elements, there_ + stored);
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
  const bool whole = weights_.gradient_type(stored) == DType::fp32;
  const std::int64_t size = whole ? 4 : 2;
  std::byte* const element = reinterpret_cast<std::byte*>(weights_.gradient(stored)) +
                             static_cast<std::int64_t>(mix64(seed + 1) % elements) * size;
  std::uint32_t bits = 0;  // of bf16 in the lower half
  stream_.download(&bits, element, size);
  if (fault_->nan)
    bits = whole ? 0x7fc00000U : 0x7fc0U;
  else
    bits ^= 1U << mix64(seed + 2) % (whole ? fraction_bits : fraction_bits_of_bf16);
  stream_.upload(element, &bits, size);
  fault_.reset();
}

}  // namespace holdfast::train
