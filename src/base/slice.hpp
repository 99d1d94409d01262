#pragma once
// How a tensor of n elements is cut over a shard group, and a member's slice over the replicas of the group:
// contiguous pieces, aligned to 64 elements, short or empty at the end. Used by the planner (bytes), the
// trainer (arenas) and checkpoints (global indices).
//
// With S members and R replicas: part = 64 * ceil(n / (S * R * 64)), stride = R * part. Member s holds
// [s * stride, (s + 1) * stride) cut at n, and replica g answers for [s * stride + g * part, + part) of it,
// cut at n.
#include <algorithm>
#include <cstdint>

namespace holdfast {

/// Elements [first, first + count) of a tensor in row-major order.
struct Slice {
  std::int64_t first = 0, count = 0;
  bool operator==(const Slice&) const = default;
};

constexpr std::int64_t slice_alignment = 64;  ///< elements; a slice starts on a cache line in fp32 and bf16

/// Elements of a replica's part of a slice.
constexpr std::int64_t slice_part(std::int64_t n, int members, int replicas) {
  const std::int64_t unit = slice_alignment * members * replicas;
  return slice_alignment * ((n + unit - 1) / unit);
}

/// Elements each member of a group of `members` is given room for.
constexpr std::int64_t slice_stride(std::int64_t n, int members, int replicas = 1) {
  return slice_part(n, members, replicas) * replicas;
}

/// Piece number `index` of n elements that are cut into pieces of `size`, short or empty at the end.
constexpr Slice piece_of(std::int64_t n, std::int64_t size, int index) {
  const std::int64_t first = std::min(n, size * index);
  return {first, std::min(n, first + size) - first};
}

/// What `member` holds. May be empty.
constexpr Slice slice_of(std::int64_t n, int members, int member, int replicas = 1) {
  return piece_of(n, slice_stride(n, members, replicas), member);
}

}  // namespace holdfast
