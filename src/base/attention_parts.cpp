#include "src/base/attention_parts.hpp"

#include <algorithm>
#include <array>

namespace holdfast {
namespace {

constexpr std::int64_t up_to_multiple(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
}

/// [0, count) in the fewest ranges of at most `most`, as equal as can be: {first, length}.
std::vector<std::array<std::int64_t, 2>> even_ranges(std::int64_t count, std::int64_t most) {
  const std::int64_t pieces = (count + most - 1) / most;
  std::vector<std::array<std::int64_t, 2>> ranges;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t first = i * count / pieces;
    ranges.push_back({first, (i + 1) * count / pieces - first});
  }
  return ranges;
}

std::vector<AttentionPart> attention_parts(const AttentionShape& shape, std::int64_t max_rows,
                                           std::int64_t max_kv_heads) {
  std::vector<AttentionPart> parts;
  for (const auto& [row, rows] : even_ranges(shape.rows, max_rows))
    for (const auto& [kv_head, kv_heads] : even_ranges(shape.kv_heads, max_kv_heads))
      parts.push_back({row, rows, kv_head, kv_heads});
  return parts;
}

/// Numbers that a part has of each of its queries: one for each of their heads.
std::int64_t queries_of(const AttentionShape& shape, const AttentionPart& part) {
  return part.rows * part.kv_heads * shape.group() * shape.sequence;
}

}  // namespace

std::int64_t score_bytes(const AttentionShape& shape, const AttentionPart& part) {
  return part.rows * part.kv_heads * shape.group() * up_to_multiple(shape.sequence, 64) *
         up_to_multiple(shape.sequence, 128) * 2;
}

std::vector<AttentionPart> forward_parts(const AttentionShape& shape) {
  return attention_parts(shape, shape.rows, shape.kv_heads);
}

std::vector<AttentionPart> backward_parts(const AttentionShape& shape, bool deterministic,
                                          std::int64_t budget) {
  const auto within_budget = [budget](std::int64_t bytes_of_one, std::int64_t count) {
    return std::clamp<std::int64_t>(budget / bytes_of_one, 1, count);
  };
  if (!deterministic)
    return attention_parts(
        shape, within_budget(shape.heads * shape.sequence * shape.head_size * 4, shape.rows), shape.kv_heads);
  const std::int64_t kv_heads = within_budget(score_bytes(shape, {0, 1, 0, 1}), shape.kv_heads);
  const std::int64_t rows =
      kv_heads < shape.kv_heads ? 1 : within_budget(score_bytes(shape, {0, 1, 0, kv_heads}), shape.rows);
  return attention_parts(shape, rows, kv_heads);
}

PartScratch backward_scratch(const AttentionShape& shape, const AttentionPart& part, bool deterministic) {
  constexpr std::int64_t alignment = 256;
  const std::int64_t numbers = queries_of(shape, part);
  PartScratch scratch;
  scratch.d_query_sums = up_to_multiple(numbers * 4, alignment);
  scratch.library =
      scratch.d_query_sums + (deterministic ? 0 : up_to_multiple(numbers * shape.head_size * 4, alignment));
  return scratch;
}

std::int64_t backward_workspace(const AttentionShape& shape, bool deterministic) {
  std::int64_t most = 0;
  for (const AttentionPart& part : backward_parts(shape, deterministic)) {
    // Where query heads share a key head, cuDNN keeps the gradients of keys and values by query head before
    // it adds them: in bf16, or in fp32 without a fixed order.
    const std::int64_t elements = queries_of(shape, part) * shape.head_size,
                       shared = shape.group() > 1 ? 4 * elements : 0;
    most = std::max(most, backward_scratch(shape, part, deterministic).library + shared +
                              (deterministic ? score_bytes(shape, part) : 0));
  }
  return most;
}

}  // namespace holdfast
