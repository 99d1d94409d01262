#include "src/train/frozen_base.hpp"

#include <algorithm>
#include <vector>

#include "checkpoint/state.hpp"
#include "src/base/digest.hpp"
#include "src/model/init.hpp"
#include "src/shard/frozen_plan.hpp"

namespace holdfast::train {
namespace {

constexpr std::int64_t most_at_once = std::int64_t{1} << 22;  // elements, whole blocks

/// Elements on their way into the frozen arena, as what they are kept.
class Frozen {
 public:
  Frozen(const shard::Layout& layout, const shard::Policy& policy, std::byte* arena, tensor::Stream& stream)
      : policy_(policy), plan_(shard::frozen_plan(layout, policy)), arena_(arena), stream_(stream) {}

  /// Elements [at, at + values.size()) of this member's slice of a stored tensor: whole blocks.
  void put(int stored, std::int64_t at, const std::vector<float>& values) {
    const shard::FrozenPlace& place = plan_.places[static_cast<std::size_t>(stored)];
    std::byte* const to = arena_ + place.values;
    const auto n = std::ssize(values);
    if (place.coded) {
      codes_.resize(static_cast<std::size_t>(code_bytes(*policy_.base, n)));
      scales_.resize(static_cast<std::size_t>(n / code_block));
      encode_blocks(*policy_.base, values, codes_, scales_);
      stream_.upload(to + code_bytes(*policy_.base, at), codes_.data(), std::ssize(codes_));
      stream_.upload(arena_ + place.scales + scale_bytes(at), scales_.data(), scale_bytes(n));
    } else if (policy_.parameters == DType::fp32) {
      stream_.upload(to + at * bytes_of(DType::fp32), values.data(), n * bytes_of(DType::fp32));
    } else {
      narrow_.resize(values.size());
      std::ranges::transform(values, narrow_.begin(), [](float x) { return to_bf16(x); });
      stream_.upload(to + at * bytes_of(DType::bf16), narrow_.data(), n * bytes_of(DType::bf16));
    }
  }

 private:
  const shard::Policy& policy_;
  const shard::FrozenPlan plan_;
  std::byte* const arena_;
  tensor::Stream& stream_;
  std::vector<std::uint8_t> codes_;
  std::vector<float> scales_;
  std::vector<Bf16> narrow_;
};

}  // namespace

std::string fill_frozen(const Setup& setup, const shard::Layout& layout, const shard::Policy& policy,
                        shard::ShardedWeights& weights, tensor::Stream& stream, comm::Communicator& world) {
  const auto tensors = config::frozen_tensors_of(setup.shape);
  if (tensors.empty()) return "";
  std::vector<std::uint64_t> digests(tensors.size(), 0);
  Frozen frozen(layout, policy, weights.frozen(), stream);
  std::vector<float> values;
  auto piece = layout.frozen.begin();
  for (int stored = 0; stored < static_cast<int>(layout.slices.size()); ++stored) {
    const shard::StoredSlice& s = layout.slices[static_cast<std::size_t>(stored)];
    if (!s.frozen) continue;
    for (std::int64_t at = 0; at < s.slice.count; at += most_at_once) {
      const std::int64_t n = std::min(most_at_once, s.slice.count - at);
      // Behind the last element zeros fill up its block.
      values.assign(static_cast<std::size_t>((n + code_block - 1) / code_block * code_block), 0.0f);
      for (; piece != layout.frozen.end() && piece->stored == stored && piece->at < at + n; ++piece) {
        const std::int64_t low = std::max(piece->at, at), high = std::min(piece->at + piece->count, at + n);
        const std::int64_t first = piece->first + low - piece->at;
        const auto t = static_cast<std::size_t>(piece->tensor);
        const std::span part = std::span(values).subspan(static_cast<std::size_t>(low - at),
                                                         static_cast<std::size_t>(high - low));
        model::initial_weights(setup.shape, tensors[t], setup.config.train.seed, first, part);
        // Replicas hold the same.
        if (layout.mesh.replica() == 0) digests[t] += digest_part(static_cast<std::uint64_t>(first), part);
        if (high < piece->at + piece->count) break;  // the rest comes with the next part
      }
      frozen.put(stored, at, values);
    }
  }
  world.all_reduce(digests, comm::Scalar::sum);
  std::vector<checkpoint::LogicalTensor> names;
  for (const auto& t : tensors) names.push_back({t.name, t.rows, t.cols, DType::fp32});
  return checkpoint::digest_text(checkpoint::state_digest(names, digests));
}

}  // namespace holdfast::train
