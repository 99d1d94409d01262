#include "src/train/engine/frozen_base.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "checkpoint/index/state.hpp"
#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/model/init.hpp"
#include "src/shard/frozen_plan.hpp"
#include "src/train/common/agree.hpp"
#include "src/train/engine/initial_weights.hpp"

namespace holdfast::train {
namespace {

constexpr std::int64_t max_at_once = std::int64_t{1} << 23;  // elements, whole blocks

/// Elements on their way into the frozen arena, as what they are kept.
class Frozen {
 public:
  Frozen(const shard::Layout& layout, const shard::Policy& policy, std::byte* arena, tensor::Stream& stream)
      : policy_(policy), plan_(shard::frozen_plan(layout, policy)), arena_(arena), stream_(stream) {}

  /// Elements [at, at + values.size()) of this member's slice of a stored tensor: whole blocks.
  void put(int stored, std::int64_t at, const std::vector<float>& values) {
    const shard::FrozenPlace& place = plan_.places[stored];
    std::byte* const to = arena_ + place.values;
    const auto n = std::ssize(values);
    if (place.coded) {
      codes_.resize(code_bytes(*policy_.base, n));
      scales_.resize(n / code_block);
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

FrozenBase fill_frozen(const Setup& setup, const shard::Layout& layout, const shard::Policy& policy,
                       shard::ShardedWeights& arenas, tensor::Stream& stream, comm::Communicator& world) {
  const auto specs = config::frozen_tensors_of(setup.shape);
  if (specs.empty()) return {};
  const auto tensors = weights::tensors_of_model(specs);
  std::optional<weights::ModelFiles> files;
  if (!setup.config.model.weights.empty()) files.emplace(open_weights(setup, world));

  std::vector<std::uint64_t> digests(specs.size(), 0);
  Frozen frozen(layout, policy, arenas.frozen(), stream);
  std::vector<float> values;
  const auto fill = [&](const checkpoint::State& part) {
    if (files) {
      files->read(part);
      return;
    }
    for (const checkpoint::PieceView& p : part.pieces)
      model::initial_weights(setup.shape, specs[p.tensor], setup.config.train.seed, p.first,
                             {static_cast<float*>(p.data), as_size(p.count)});
  };
  together(world, true, [&] {
    auto piece = layout.frozen.begin();
    for (int stored = 0; stored < static_cast<int>(layout.slices.size()); ++stored) {
      const shard::StoredSlice& s = layout.slices[stored];
      if (!s.frozen) continue;
      for (std::int64_t at = 0; at < s.slice.count; at += max_at_once) {
        const std::int64_t n = std::min(max_at_once, s.slice.count - at);
        // Behind the last element zeros fill up its block.
        values.assign((n + code_block - 1) / code_block * code_block, 0.0f);
        checkpoint::State part{tensors, {}};
        for (; piece != layout.frozen.end() && piece->stored == stored && piece->at < at + n; ++piece) {
          const std::int64_t low = std::max(piece->at, at), high = std::min(piece->at + piece->count, at + n);
          part.pieces.push_back(
              {piece->tensor, piece->first + low - piece->at, high - low, values.data() + (low - at)});
          if (high < piece->at + piece->count) break;  // the rest comes with the next part
        }
        fill(part);
        for (const checkpoint::PieceView& p : part.pieces)
          if (layout.mesh.replica() == 0)  // the others hold the same
            digests[p.tensor] +=
                digest_part(static_cast<std::uint64_t>(p.first), p.data, DType::fp32, p.count);
        frozen.put(stored, at, values);
      }
    }
  });
  world.all_reduce(digests, comm::Scalar::sum);
  if (files) files->check(tensors, digests);
  return {checkpoint::digest_text(checkpoint::state_digest(tensors, digests)),
          files ? std::filesystem::absolute(files->path()).lexically_normal().string() : ""};
}

}  // namespace holdfast::train
