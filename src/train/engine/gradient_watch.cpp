#include "src/train/engine/gradient_watch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/base/digest.hpp"

namespace holdfast::train {
namespace {

constexpr std::int64_t max_watched = std::int64_t{1} << 20;  // elements
constexpr int fraction_bits = 23;

bool are_finite(const float* numbers, std::int64_t count) {
  return std::all_of(numbers, numbers + count, [](float x) { return std::isfinite(x); });
}

}  // namespace

GradientWatch::GradientWatch(model::Weights& weights, const shard::Layout& layout,
                             const device::Device& device, tensor::Stream& stream)
    : weights_(weights), layout_(layout), is_host_(device.is_host()), stream_(stream) {
  if (!is_host_) room_.resize(max_watched);
}

void GradientWatch::begin(bool reduced, const std::optional<GradientFault>& fault) {
  reduced_ = reduced;
  fault_ = fault;
  hash_ = 0;
  finite_ = true;
}

void GradientWatch::reduce(int unit) {
  if (fault_) spoil(unit);
  for (const int stored : layout_.unit_trained[unit]) {
    const std::int64_t count = layout_.slices[stored].elements;
    hash_ += mix64(digest(weights_.gradient(stored), count) ^ mix64(static_cast<std::uint64_t>(stored) + 1));
  }
  if (reduced_) weights_.reduce(unit);
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

std::uint64_t GradientWatch::digest(const float* gradient, std::int64_t count) {
  if (is_host_) {
    finite_ = finite_ && are_finite(gradient, count);
    return digest_part(0, gradient, DType::fp32, count);
  }
  std::uint64_t sum = 0;
  for (std::int64_t at = 0; at < count; at += max_watched) {
    const std::int64_t n = std::min(max_watched, count - at);
    stream_.download(room_.data(), gradient + at, n * static_cast<std::int64_t>(sizeof(float)));
    finite_ = finite_ && are_finite(room_.data(), n);
    sum += digest_part(static_cast<std::uint64_t>(at), room_.data(), DType::fp32, n);
  }
  return sum;
}

}  // namespace holdfast::train
