#pragma once
// Which writer has which elements of a checkpoint, and where in its shard: a closed form. A manifest has to
// name a few numbers per tensor and not a million pieces.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/index/state.hpp"

namespace holdfast::checkpoint {

/// How some tensors, consecutive ones of the list, are cut as if they were one array of n elements: member s
/// has elements [s * stride, (s + 1) * stride), and of these replica g writes the `part` elements from
/// s * stride + g * part on; less where the array or the member's slice ends.
struct Cut {
  int tensors = 1;                    ///< how many, following those of the cut before
  std::int64_t stride = 1, part = 1;  ///< in elements
  bool operator==(const Cut&) const = default;
};

/// Writer r is member r % members and replica r / members. The cuts take the tensors in their order.
struct WriterLayout {
  int members = 1, replicas = 1;
  std::vector<Cut> cuts;
  int writers() const { return members * replicas; }
  bool operator==(const WriterLayout&) const = default;
};

/// A piece and its byte offset in its shard file.
struct StoredPiece {
  PieceSpan span;
  std::int64_t offset = 0;
};

/// `visit(span)` for every piece of a writer that is not empty, in the order in which it writes. The layout
/// is one that prove_layout() accepts.
template <class Visit>
void for_each_span(std::span<const LogicalTensor> tensors, const WriterLayout& layout, int writer,
                   Visit visit) {
  const std::int64_t member = writer % layout.members, replica = writer / layout.members;
  int tensor = 0;
  for (const Cut& cut : layout.cuts) {
    // In two steps: products stay below the sum of n and a stride.
    const int end_tensor = tensor + cut.tensors;
    std::int64_t n = 0;
    for (int t = tensor; t < end_tensor; ++t) n += tensors[t].elements();
    const auto at_most = [](std::int64_t count, std::int64_t each, std::int64_t limit) {
      return count <= limit / each ? count * each : limit;
    };
    const std::int64_t slice = at_most(member, cut.stride, n), slice_end = std::min(n, slice + cut.stride);
    const std::int64_t first = slice + at_most(replica, cut.part, slice_end - slice);
    const std::int64_t end = std::min(slice_end, first + cut.part);
    for (std::int64_t base = 0; tensor < end_tensor; ++tensor) {
      const std::int64_t elements = tensors[tensor].elements();
      const std::int64_t from = std::max(first, base), to = std::min(end, base + elements);
      if (from < to) visit(PieceSpan{tensor, from - base, to - from});
      base += elements;
    }
  }
}

/// What a writer writes, in its order; no empty pieces.
std::vector<PieceSpan> spans_of(std::span<const LogicalTensor> tensors, const WriterLayout& layout,
                                int writer);
/// Bytes of the pieces of a writer.
std::int64_t payload_bytes(std::span<const LogicalTensor> tensors, const WriterLayout& layout, int writer);

/// Where pieces lie in their shard: without gaps from `payload_offset` on, those with elements of 4 bytes
/// before those of 2, else in the order given; returned in the order given.
std::vector<StoredPiece> placed(std::span<const LogicalTensor> tensors, std::span<const PieceSpan> spans,
                                std::int64_t payload_offset);

/// Throws Damaged unless the layout gives every element of every tensor to exactly one writer. By the numbers
/// of the cuts alone: an element e of an array belongs to member e / stride and replica (e % stride) / part,
/// so it is enough that there are so many of both, and that the cuts take each tensor once.
void prove_layout(std::span<const LogicalTensor> tensors, const WriterLayout& layout);

}  // namespace holdfast::checkpoint
