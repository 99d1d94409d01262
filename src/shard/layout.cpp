#include "src/shard/layout.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::shard {
namespace {

constexpr std::int64_t unit_alignment = 512;  // elements: a GEMM operand starts on 1 KiB, in bf16 too

/// The logical pieces of stored elements `range`, which lie at `offset`.
void append_pieces(std::vector<Piece>& out, const config::StoredTensor& stored,
                   const std::vector<config::TensorSpec>& specs, Slice range, std::int64_t offset) {
  std::int64_t base = 0;
  for (int part = stored.first_part; part < stored.first_part + stored.parts; ++part) {
    const std::int64_t n = specs[part].elements();
    const std::int64_t first = std::max(range.first, base),
                       end = std::min(range.first + range.count, base + n);
    if (first < end) out.push_back({part, first - base, end - first, offset + first - range.first});
    base += n;
  }
}

/// The cut of one tensor; offsets are left to the caller.
StoredSlice cut(const config::StoredTensor& stored, const Mesh& mesh) {
  StoredSlice out;
  out.unit = stored.unit;
  out.frozen = stored.frozen;
  out.linear = stored.linear;
  out.elements = stored.elements();
  // Only where replicas share out the state does its cut depend on how many there are: else a run that loses
  // one goes on with the same slices.
  const int cut_for = mesh.split_optimizer && !stored.frozen ? mesh.replicas : 1;
  out.stride = slice_stride(out.elements, mesh.group, cut_for);
  if (stored.frozen) {
    out.slice = slice_of(out.elements, mesh.group, mesh.member());
    return out;
  }
  out.part = slice_part(out.stride, 1, mesh.replicas);
  out.slice = slice_of(out.elements, mesh.group, mesh.member(), cut_for);
  out.owned = piece_of(out.slice.count, out.part, mesh.replica());
  out.owned.first += out.slice.first;
  out.optimized = mesh.split_optimizer ? out.owned : out.slice;
  return out;
}

}  // namespace

Layout layout_of(const config::ModelShape& shape, const Mesh& mesh) {
  const auto specs = config::tensors_of(shape), frozen = config::frozen_tensors_of(shape);
  const auto align = [](std::int64_t& end) {
    return end = (end + unit_alignment - 1) / unit_alignment * unit_alignment;
  };
  Layout out;
  out.mesh = mesh;
  out.layers = shape.layers;
  out.tied = shape.tied_embeddings;
  const auto units = as_size(out.units());
  out.unit_elements.assign(units, 0), out.gradient_elements.assign(units, 0);
  out.unit_stored.resize(units), out.unit_trained.resize(units), out.unit_slices.resize(units);
  for (const auto& stored : config::stored_tensors_of(shape)) {
    StoredSlice s = cut(stored, mesh);
    const auto unit = as_size(stored.unit);
    const auto number = static_cast<int>(out.slices.size());
    s.unit_offset = align(out.unit_elements[unit]);
    out.unit_elements[unit] += s.stride * mesh.group;
    out.unit_stored[unit].push_back(number);
    if (s.frozen) {
      std::vector<Piece> pieces;
      append_pieces(pieces, stored, frozen, s.slice, 0);
      for (const Piece& p : pieces) out.frozen.push_back({number, p.tensor, p.first, p.count, p.offset});
    } else {
      s.gradient_offset = align(out.gradient_elements[unit]);
      Slice& of_unit = out.unit_slices[unit];
      if (of_unit.count == 0) of_unit.first = out.slice_elements;
      expects(of_unit.first + of_unit.count == out.slice_elements, "a unit's tensors lie behind each other");
      of_unit.count += s.stride;
      s.offset = out.slice_elements;
      s.optimizer_offset = out.arena_elements;
      append_pieces(out.held, stored, specs, s.optimized, s.optimizer_offset);
      append_pieces(out.owned, stored, specs, s.owned,
                    s.optimizer_offset + s.owned.first - s.optimized.first);
      out.gradient_elements[unit] += s.stride * mesh.group;
      out.slice_elements += s.stride;
      out.arena_elements += mesh.split_optimizer ? s.part : s.stride;
      out.unit_trained[unit].push_back(number);
    }
    out.slices.push_back(s);
  }
  if (!mesh.split_optimizer) {
    // Replicas gather the sums of a unit in whole parts, behind those of the units above it: what goes beyond
    // the unit are their sums, which all replicas have by then. At the end of the arena there is room
    // instead.
    for (const Slice& unit : out.unit_slices)
      out.slice_elements =
          std::max(out.slice_elements, unit.first + slice_stride(unit.count, mesh.replicas) * mesh.replicas);
  }
  return out;
}

}  // namespace holdfast::shard
