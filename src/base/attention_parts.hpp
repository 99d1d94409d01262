#pragma once
// How the attention of a GPU is cut into parts that one graph computes, and what memory the backward pass of
// a part takes: GPUs cut by it, and the planner counts by it. Pure.
#include <compare>
#include <cstdint>
#include <vector>

namespace holdfast {

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

/// Bytes of the workspace that the largest part of the backward pass needs, with the most that cuDNN was seen
/// to ask for, but for a few kilobytes. The forward pass needs less.
std::int64_t backward_workspace(const AttentionShape& shape, bool deterministic);

}  // namespace holdfast
