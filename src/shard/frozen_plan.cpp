#include "src/shard/frozen_plan.hpp"

#include "src/tensor/arena.hpp"

namespace holdfast::shard {

FrozenPlan frozen_plan(const Layout& layout, const Policy& policy) {
  static_assert(code_block == slice_alignment, "a slice is whole blocks");
  FrozenPlan out;
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t at = out.bytes;
    out.bytes += bytes;
    return at;
  };
  for (const StoredSlice& s : layout.slices) {
    FrozenPlace& place = out.places.emplace_back();
    if (!s.frozen) continue;
    place.coded = policy.base && s.linear;
    place.values = take(place.coded ? code_bytes(*policy.base, s.stride)
                                    : s.stride * tensor::bytes_of(policy.parameters));
    if (place.coded) place.scales = take(scale_bytes(s.stride));
  }
  constexpr std::int64_t line = tensor::Arena::alignment;
  out.bytes = (out.bytes + line - 1) / line * line;
  return out;
}

bool gathers(const Layout& layout, const Policy& policy) {
  if (layout.mesh.group > 1) return true;
  if (!policy.base) return false;
  for (const StoredSlice& s : layout.slices)
    if (s.frozen && s.linear) return true;
  return false;
}

}  // namespace holdfast::shard
