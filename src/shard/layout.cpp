#include "src/shard/layout.hpp"

namespace holdfast::shard {
namespace {

constexpr std::int64_t unit_alignment = 256;  // elements: a GEMM operand starts on 1 KiB

/// The logical pieces of stored elements [first, first + count), which lie at `offset`.
void append_pieces(std::vector<Piece>& out, const config::StoredTensor& stored,
                   const std::vector<config::TensorSpec>& specs, Slice range, std::int64_t offset) {
  std::int64_t base = 0;
  for (int part = stored.first_part; part < stored.first_part + stored.parts; ++part) {
    const std::int64_t n = specs[static_cast<std::size_t>(part)].elements();
    const std::int64_t first = std::max(range.first, base),
                       end = std::min(range.first + range.count, base + n);
    if (first < end) out.push_back({part, first - base, end - first, offset + first - range.first});
    base += n;
  }
}

}  // namespace

Layout layout_of(const config::ModelShape& shape, const Mesh& mesh) {
  const auto specs = config::tensors_of(shape);
  Layout out;
  out.mesh = mesh;
  out.unit_elements.assign(static_cast<std::size_t>(shape.layers) + 2, 0);
  for (const auto& stored : config::stored_tensors_of(shape)) {
    const std::int64_t stride = slice_stride(stored.elements(), mesh.group);
    std::int64_t& unit_end = out.unit_elements[static_cast<std::size_t>(stored.unit)];
    unit_end = (unit_end + unit_alignment - 1) / unit_alignment * unit_alignment;
    const Slice slice = slice_of(stored.elements(), mesh.group, mesh.member());
    out.slices.push_back({stored.elements(), slice, out.arena_elements, unit_end, stored.unit});
    append_pieces(out.held, stored, specs, slice, out.arena_elements);
    const Slice own = slice_of(slice.count, mesh.replicas, mesh.replica());
    append_pieces(out.owned, stored, specs, {slice.first + own.first, own.count},
                  out.arena_elements + own.first);
    out.arena_elements += stride;
    unit_end += stride * mesh.group;
  }
  // Replicas share out the whole arena in equal parts when they exchange tree nodes.
  out.arena_elements = slice_stride(out.arena_elements, mesh.replicas) * mesh.replicas;
  return out;
}

}  // namespace holdfast::shard
