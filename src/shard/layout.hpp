#pragma once
// Where every element lives, as a pure function of (model, mesh): what a rank holds, where it lies in its
// arenas, and what it alone answers for. All walks over parameters and optimizer state (AdamW, norm, digest,
// checkpoint) use these tables.
//
// Three kinds of arena. Slice arenas (gradient accumulators, parameters in the wire type) hold this member's
// slice of every tensor that is trained. Optimizer arenas (fp32 parameters, both moments, the gradient sum)
// hold what this rank's optimizer updates: the same slices, or under HFSDP only this replica's part of each.
// The frozen arena holds this member's slice of every tensor that is not trained; see FrozenPlan.
#include <cstdint>
#include <vector>

#include "src/base/slice.hpp"
#include "src/config/model_shape.hpp"
#include "src/shard/mesh.hpp"

namespace holdfast::shard {

/// This rank's part of one stored tensor. Slices are in stored elements.
struct StoredSlice {
  int unit = 0;
  bool frozen = false, linear = false;  ///< as config::StoredTensor has it
  std::int64_t elements = 0;            ///< n, of the whole stored tensor
  std::int64_t stride = 0,
               part = 0;  ///< room of a member's slice; of a replica's part of it (base/slice.hpp)
  Slice slice;            ///< this member's
  Slice owned;            ///< this replica's part of it: what this rank alone answers for; frozen: nothing
  Slice optimized;        ///< what its optimizer updates: `owned` under HFSDP, else `slice`; frozen: nothing
  std::int64_t offset = 0;            ///< of `slice` in every slice arena
  std::int64_t optimizer_offset = 0;  ///< of `optimized` in every optimizer arena
  std::int64_t unit_offset = 0;       ///< of the whole tensor in its gather buffer
  std::int64_t gradient_offset = 0;   ///< of its gradient among those of its unit
};

/// Elements [first, first + count) of logical tensor `tensor` (an index of config::tensors_of), at `offset`
/// of every optimizer arena.
struct Piece {
  int tensor = 0;
  std::int64_t first = 0, count = 0, offset = 0;
  bool operator==(const Piece&) const = default;
};

/// Elements [first, first + count) of a tensor that is not trained (an index of config::frozen_tensors_of),
/// `at` elements behind the begin of this member's slice of stored tensor `stored`.
struct FrozenPiece {
  int stored = 0, tensor = 0;
  std::int64_t first = 0, count = 0, at = 0;
};

struct Layout {
  Mesh mesh;
  int layers = 0;
  bool tied = false;                           ///< the head reads the embedding
  std::vector<StoredSlice> slices;             ///< one per stored tensor
  std::vector<std::vector<int>> unit_stored;   ///< the stored tensors of each unit
  std::vector<std::vector<int>> unit_trained;  ///< those of them that are trained
  std::vector<Piece> held;  ///< what the optimizer arenas hold, in their order; no empty pieces
  /// The part of `held` that this rank alone answers for. Over all ranks every element of every tensor is
  /// owned exactly once. Written to checkpoints, digested, counted in the norm.
  std::vector<Piece> owned;
  std::vector<FrozenPiece> frozen;  ///< what this member has of them, in order; the same on every replica
  std::int64_t arena_elements = 0;  ///< of each optimizer arena
  std::int64_t slice_elements = 0;  ///< of each slice arena; the same on every rank
  /// The slices of a unit's trained tensors, which lie behind each other in a slice arena; their padding
  /// counts.
  std::vector<Slice> unit_slices;
  std::vector<std::int64_t> unit_elements;      ///< of the gather buffer of each unit; the same on every rank
  std::vector<std::int64_t> gradient_elements;  ///< of each unit's gradients; the same on every rank

  int units() const { return layers + 2; }
};

Layout layout_of(const config::ModelShape& shape, const Mesh& mesh);

}  // namespace holdfast::shard
