#include "src/train/frozen_base.hpp"

#include <algorithm>
#include <vector>

#include "checkpoint/state.hpp"
#include "src/base/digest.hpp"
#include "src/model/init.hpp"
#include "src/shard/policy.hpp"

namespace holdfast::train {
namespace {

constexpr std::int64_t most_at_once = std::int64_t{1} << 22;  // elements

/// `values` as elements of `type` in `room`.
const std::byte* as_type(const std::vector<float>& values, DType type, std::vector<tensor::Bf16>& room) {
  if (type == DType::fp32) return reinterpret_cast<const std::byte*>(values.data());
  room.resize(values.size());
  std::ranges::transform(values, room.begin(), [](float x) { return tensor::to_bf16(x); });
  return reinterpret_cast<const std::byte*>(room.data());
}

}  // namespace

std::string fill_frozen(const Setup& setup, const shard::Layout& layout, shard::ShardedWeights& weights,
                        tensor::Stream& stream, comm::Communicator& world) {
  const auto tensors = config::frozen_tensors_of(setup.shape);
  if (tensors.empty()) return "";
  const DType type = shard::type_of(setup.config.precision.parameters);
  std::vector<std::uint64_t> digests(tensors.size(), 0);
  std::vector<float> values;
  std::vector<tensor::Bf16> room;
  for (const shard::Piece& piece : layout.frozen) {
    const auto t = static_cast<std::size_t>(piece.tensor);
    for (std::int64_t at = 0; at < piece.count; at += most_at_once) {
      const std::int64_t first = piece.first + at, n = std::min(most_at_once, piece.count - at);
      values.resize(static_cast<std::size_t>(n));
      model::initial_weights(setup.shape, tensors[t], setup.config.train.seed, first, values);
      const std::byte* const typed = as_type(values, type, room);
      stream.upload(weights.frozen() + (piece.offset + at) * bytes_of(type), typed, n * bytes_of(type));
      // Replicas hold the same.
      if (layout.mesh.replica() == 0)
        digests[t] += digest_part(static_cast<std::uint64_t>(first), typed, type, n);
    }
  }
  world.all_reduce(digests, comm::Scalar::sum);
  std::vector<checkpoint::LogicalTensor> names;
  for (const auto& t : tensors) names.push_back({t.name, t.rows, t.cols, type});
  return checkpoint::digest_text(checkpoint::state_digest(names, digests));
}

}  // namespace holdfast::train
