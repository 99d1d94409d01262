#pragma once
// How attention is cut into parts that one graph computes, and where the tensors of a part lie in the
// caller's matrices. Pure: the engine on the GPU and the reference of the simulator follow the same plan.
#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// What decides which graphs are needed.
struct AttentionShape {
  std::int64_t rows = 0;
  std::int64_t sequence = 0, heads = 0, kv_heads = 0, head_size = 0;
  bool documents = false;

  std::int64_t tokens() const { return rows * sequence; }
  /// Query heads that share a key/value head.
  std::int64_t group() const { return heads / kv_heads; }
  auto operator<=>(const AttentionShape&) const = default;
};
/// Checks what the caller promised. Pointers may be null.
AttentionShape shape_of(const kernels::Attention& call);
/// An Error (usage) names what the GPU's attention supports: bf16, and head sizes.
void check_supported(const AttentionShape& shape, tensor::DType type);

/// Whole key/value heads, and the query heads that read them, of neighbouring rows.
struct AttentionPart {
  std::int64_t first_row = 0, rows = 0;
  std::int64_t first_kv_head = 0, kv_heads = 0;

  auto operator<=>(const AttentionPart&) const = default;
};

/// Everything at once: no part of the scores is ever stored.
std::vector<AttentionPart> forward_parts(const AttentionShape& shape);

/// For sums over keys in a fixed order the gradients of all scores are stored, in bf16, for blocks of 64
/// queries and 128 keys: parts are cut so that these take at most `budget` bytes, or one key/value head
/// of one row each. What else a part needs grows with its tokens only. Otherwise the gradients of queries are
/// summed in fp32 as they arrive: parts are rows, cut so that these sums stay within the budget.
constexpr std::int64_t score_budget = std::int64_t{256} << 20;
std::vector<AttentionPart> backward_parts(const AttentionShape& shape, bool deterministic,
                                          std::int64_t budget = score_budget);
/// Bytes of the stored gradients of scores of a part.
std::int64_t score_bytes(const AttentionShape& shape, const AttentionPart& part);

/// Scratch of a part's backward pass, in bytes from the beginning of the workspace: each aligned to 256.
struct PartScratch {
  std::int64_t mean = 0;          ///< fp32, a number per query and head
  std::int64_t d_query_sums = 0;  ///< fp32, packed like the part's queries; empty when deterministic
  std::int64_t library = 0;       ///< what else is there belongs to the library
};
PartScratch backward_scratch(const AttentionShape& shape, const AttentionPart& part, bool deterministic);

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
