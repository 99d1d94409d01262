#pragma once
// How a tensor of n elements is cut over a shard group: contiguous slices, aligned to 64 elements, short or
// empty at the end. Used by the planner (bytes), the trainer (arenas) and checkpoints (global indices).
#include <algorithm>
#include <cstdint>

namespace holdfast {

/// Elements [first, first + count) of a tensor in row-major order.
struct Slice {
  std::int64_t first = 0, count = 0;
  bool operator==(const Slice&) const = default;
};

constexpr std::int64_t slice_alignment = 64;  ///< elements; a slice starts on a cache line in fp32 and bf16

/// Elements each member of a group of `members` is given room for: 64 * ceil(n / (members * 64)).
constexpr std::int64_t slice_stride(std::int64_t n, int members) {
  const std::int64_t unit = slice_alignment * members;
  return slice_alignment * ((n + unit - 1) / unit);
}

/// What `member` holds: [member * stride, (member + 1) * stride) cut at n. May be empty.
constexpr Slice slice_of(std::int64_t n, int members, int member) {
  const std::int64_t stride = slice_stride(n, members);
  const std::int64_t first = std::min(n, stride * member);
  return {first, std::min(n, stride * (member + 1)) - first};
}

}  // namespace holdfast
