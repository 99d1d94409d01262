#pragma once
// Where every element lives, as a pure function of (model, mesh): what a rank holds, where it lies in its
// arenas, and what it alone answers for. All walks over parameters and optimizer state (AdamW, norm, digest,
// checkpoint) use these tables.
#include <cstdint>
#include <vector>

#include "src/base/slice.hpp"
#include "src/config/model_shape.hpp"
#include "src/shard/mesh.hpp"

namespace holdfast::shard {

/// This rank's part of one stored tensor.
struct StoredSlice {
  std::int64_t elements = 0;     ///< of the whole stored tensor
  Slice slice;                   ///< stored elements held here
  std::int64_t offset = 0;       ///< where they begin in every arena; room for slice_stride() elements
  std::int64_t unit_offset = 0;  ///< where the whole tensor begins in the gathered buffer of its unit
  int unit = 0;
};

/// Elements [first, first + count) of logical tensor `tensor` (an index of config::tensors_of), at `offset`
/// of every arena.
struct Piece {
  int tensor = 0;
  std::int64_t first = 0, count = 0, offset = 0;
  bool operator==(const Piece&) const = default;
};

struct Layout {
  Mesh mesh;
  std::vector<StoredSlice> slices;  ///< one per stored tensor
  std::vector<Piece> held;          ///< what this rank holds, in arena order; no empty pieces
  /// The part of `held` that this rank alone answers for: its replicas hold the same and share it out. Over
  /// all ranks every element of every tensor is owned exactly once. Written to checkpoints, digested, counted
  /// in the norm.
  std::vector<Piece> owned;
  std::int64_t arena_elements = 0;          ///< of each arena (parameters, both moments, each accumulator)
  std::vector<std::int64_t> unit_elements;  ///< of the gathered buffer of each unit
};

Layout layout_of(const config::ModelShape& shape, const Mesh& mesh);

}  // namespace holdfast::shard
