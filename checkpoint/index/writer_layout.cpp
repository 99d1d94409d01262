#include "checkpoint/index/writer_layout.hpp"

#include <limits>
#include <string>

#include "checkpoint/index/manifest.hpp"
#include "src/base/as_size.hpp"

namespace holdfast::checkpoint {

std::vector<PieceSpan> spans_of(std::span<const LogicalTensor> tensors, const WriterLayout& layout,
                                int writer) {
  std::vector<PieceSpan> spans;
  for_each_span(tensors, layout, writer, [&](const PieceSpan& span) { spans.push_back(span); });
  return spans;
}

std::int64_t payload_bytes(std::span<const LogicalTensor> tensors, const WriterLayout& layout, int writer) {
  std::int64_t bytes = 0;
  for_each_span(tensors, layout, writer, [&](const PieceSpan& span) { bytes += bytes_of(span, tensors); });
  return bytes;
}

std::vector<StoredPiece> placed(std::span<const LogicalTensor> tensors, std::span<const PieceSpan> spans,
                                std::int64_t payload_offset) {
  std::vector<StoredPiece> pieces;
  pieces.reserve(spans.size());
  for (const PieceSpan& span : spans) pieces.push_back({span, 0});
  for (const DType type : {DType::fp32, DType::bf16})
    for (StoredPiece& piece : pieces) {
      if (tensors[piece.span.tensor].type != type) continue;
      piece.offset = payload_offset;
      payload_offset += bytes_of(piece.span, tensors);
    }
  return pieces;
}

void prove_layout(std::span<const LogicalTensor> tensors, const WriterLayout& layout) {
  if (layout.members < 1 || layout.replicas < 1 ||
      layout.replicas > std::numeric_limits<int>::max() / layout.members)
    refuse_manifest("there are " + std::to_string(layout.members) + " members and " +
                    std::to_string(layout.replicas) + " replicas");
  const auto parts_of = [](std::int64_t n, std::int64_t each) { return n / each + (n % each != 0); };
  std::size_t next = 0;
  for (std::size_t i = 0; i < layout.cuts.size(); ++i) {
    const Cut& cut = layout.cuts[i];
    const std::string which = "cut " + std::to_string(i) + " of the layout";
    if (cut.tensors < 1 || as_size(cut.tensors) > tensors.size() - next)
      refuse_manifest(which + " takes " + std::to_string(cut.tensors) + " tensors of " +
                      std::to_string(tensors.size() - next));
    std::int64_t n = 0;
    for (const auto end = next + as_size(cut.tensors); next < end; ++next) {
      n += tensors[next].elements();
      if (n > max_elements) refuse_manifest(which + " has too many elements");
    }
    if (cut.stride < 1 || cut.stride > max_elements || cut.part < 1 || cut.part > max_elements)
      refuse_manifest(which + " has a stride of " + std::to_string(cut.stride) + " and parts of " +
                      std::to_string(cut.part));
    if (parts_of(n, cut.stride) > layout.members ||
        parts_of(std::min(n, cut.stride), cut.part) > layout.replicas)
      refuse_manifest(which + " leaves elements that are stored nowhere");
  }
  if (next != tensors.size()) refuse_manifest("tensor " + tensors[next].name + " is stored nowhere");
}

}  // namespace holdfast::checkpoint
