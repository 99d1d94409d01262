#include "src/cuda/attention/attention_plan.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/error.hpp"
#include "src/base/gpu_limits.hpp"

namespace holdfast::cuda {

namespace {

constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

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

std::vector<AttentionPart> parts_of(const AttentionShape& shape, std::int64_t max_rows,
                                    std::int64_t max_kv_heads) {
  std::vector<AttentionPart> parts;
  for (const auto& [row, rows] : even_ranges(shape.rows, max_rows))
    for (const auto& [kv_head, kv_heads] : even_ranges(shape.kv_heads, max_kv_heads))
      parts.push_back({row, rows, kv_head, kv_heads});
  return parts;
}

}  // namespace

AttentionShape shape_of(const kernels::Attention& a) {
  expects(a.sequence > 0 && a.qkv.rows > 0 && a.qkv.rows % a.sequence == 0, "attention: whole rows");
  expects(a.kv_heads > 0 && a.heads > 0 && a.heads % a.kv_heads == 0,
          "attention: key heads divide query heads");
  expects(a.qkv.cols == (static_cast<std::int64_t>(a.heads) + 2 * a.kv_heads) * a.head_size,
          "attention: packed columns");
  return {a.qkv.rows / a.sequence,     a.sequence, a.heads, a.kv_heads, a.head_size,
          a.documents.start != nullptr};
}

void check_supported(const AttentionShape& shape, tensor::DType type) {
  check_gpu_attention(type == tensor::DType::bf16, shape.head_size);
}

std::int64_t score_bytes(const AttentionShape& shape, const AttentionPart& part) {
  return part.rows * part.kv_heads * shape.group() * round_up(shape.sequence, 64) *
         round_up(shape.sequence, 128) * 2;
}

std::vector<AttentionPart> forward_parts(const AttentionShape& shape) {
  return parts_of(shape, shape.rows, shape.kv_heads);
}

std::vector<AttentionPart> backward_parts(const AttentionShape& shape, bool deterministic,
                                          std::int64_t budget) {
  const auto within_budget = [budget](std::int64_t bytes_of_one, std::int64_t count) {
    return std::clamp<std::int64_t>(budget / bytes_of_one, 1, count);
  };
  if (!deterministic)
    return parts_of(shape, within_budget(shape.heads * shape.sequence * shape.head_size * 4, shape.rows),
                    shape.kv_heads);
  const std::int64_t kv_heads = within_budget(score_bytes(shape, {0, 1, 0, 1}), shape.kv_heads);
  const std::int64_t rows =
      kv_heads < shape.kv_heads ? 1 : within_budget(score_bytes(shape, {0, 1, 0, kv_heads}), shape.rows);
  return parts_of(shape, rows, kv_heads);
}

PartScratch backward_scratch(const AttentionShape& shape, const AttentionPart& part, bool deterministic) {
  constexpr std::int64_t alignment = 256;
  const std::int64_t numbers = part.rows * part.kv_heads * shape.group() * shape.sequence;
  PartScratch scratch;
  scratch.d_query_sums = round_up(numbers * 4, alignment);
  scratch.library =
      scratch.d_query_sums + (deterministic ? 0 : round_up(numbers * shape.head_size * 4, alignment));
  return scratch;
}

Placement Placement::transposed() const {
  Placement p = *this;
  std::swap(p.dims[2], p.dims[3]);
  std::swap(p.strides[2], p.strides[3]);
  return p;
}
std::int64_t Placement::span_bytes(std::int64_t element_bytes) const {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return (last + 1) * element_bytes;
}

Placement PartLayout::columns(std::int64_t first, std::int64_t heads, std::int64_t stride) const {
  const std::int64_t s = shape_.sequence, d = shape_.head_size;
  return {part_.first_row * s * stride + first * d, {part_.rows, heads, s, d}, {s * stride, d, stride, 1}};
}
Placement PartLayout::queries(std::int64_t stride) const {
  return columns(part_.first_kv_head * shape_.group(), heads(), stride);
}
Placement PartLayout::keys(std::int64_t stride) const {
  return columns(shape_.heads + part_.first_kv_head, part_.kv_heads, stride);
}
Placement PartLayout::values(std::int64_t stride) const {
  return columns(shape_.heads + shape_.kv_heads + part_.first_kv_head, part_.kv_heads, stride);
}
Placement PartLayout::outputs(std::int64_t stride) const { return queries(stride); }
Placement PartLayout::log_sums() const {
  const std::int64_t s = shape_.sequence, tokens = shape_.tokens();
  return {part_.first_kv_head * shape_.group() * tokens + part_.first_row * s,
          {part_.rows, heads(), s, 1},
          {s, tokens, 1, 1}};
}
Placement PartLayout::starts() const {
  const std::int64_t s = shape_.sequence;
  return {part_.first_row * s, {part_.rows, 1, s, 1}, {s, s, 1, 1}};
}

}  // namespace holdfast::cuda
