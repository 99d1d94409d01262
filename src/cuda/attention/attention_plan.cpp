#include "src/cuda/attention/attention_plan.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/error.hpp"
#include "src/base/gpu_limits.hpp"

namespace holdfast::cuda {

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
