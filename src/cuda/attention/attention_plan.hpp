#pragma once
// Where the tensors of a part of attention (src/base/attention_parts.hpp) lie in the caller's matrices. Pure:
// the engine on the GPU and the reference of the simulator follow the same plan.
#include <array>
#include <cstdint>

#include "src/base/attention_parts.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// Checks what the caller promised. Pointers may be null.
AttentionShape shape_of(const kernels::Attention& call);
/// An Error (usage) names what the GPU's attention supports: bf16, and head sizes.
void check_supported(const AttentionShape& shape, tensor::DType type);

/// A tensor of a part in its caller's memory, in elements: dimensions are batch, head, row, column.
struct Placement {
  std::int64_t offset = 0;
  std::array<std::int64_t, 4> dims{}, strides{};

  /// Rows and columns exchanged.
  Placement transposed() const;
  /// Bytes from the first element to behind the last.
  std::int64_t span_bytes(std::int64_t element_bytes) const;
};

/// Where the tensors of one part lie. `stride`: elements from a token to the next in the matrix.
class PartLayout {
 public:
  PartLayout(const AttentionShape& shape, const AttentionPart& part) : shape_(shape), part_(part) {}

  // In qkv or d_qkv: rows are places, columns the head's elements.
  Placement queries(std::int64_t stride) const;
  Placement keys(std::int64_t stride) const;
  Placement values(std::int64_t stride) const;
  /// In out or d_out.
  Placement outputs(std::int64_t stride) const;
  /// In log_sum, which lies head by head: one column.
  Placement log_sums() const;
  /// In Documents::start, the same for all heads: one column.
  Placement starts() const;

  std::int64_t heads() const { return part_.kv_heads * shape_.group(); }
  const AttentionShape& shape() const { return shape_; }
  const AttentionPart& part() const { return part_; }

 private:
  Placement columns(std::int64_t first, std::int64_t heads, std::int64_t stride) const;

  AttentionShape shape_;
  AttentionPart part_;
};

}  // namespace holdfast::cuda
