#pragma once
// What attention in fp32 and in bf16 share: where the parts of a head lie, which keys a strip of queries
// looks at, and how scratch memory is divided. Private to src/kernels/cpu_attention*.cpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "src/kernels/kernels.hpp"

namespace holdfast::kernels {

constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

/// Where the parts of one query head of one row lie.
struct Head {
  const Attention& a;
  std::int64_t head, group;  ///< group: the key/value head
  std::int64_t first;        ///< token at which the row begins

  Head(const Attention& attention, std::int64_t row, std::int64_t head_index)
      : a(attention), head(head_index), group(head_index / (a.heads / a.kv_heads)), first(row * a.sequence) {}
  /// Places [low, low + count) of one part.
  template <class M>
  M query(M qkv, std::int64_t low, std::int64_t count) const {
    return part(qkv, head, low, count);
  }
  template <class M>
  M key(M qkv, std::int64_t low, std::int64_t count) const {
    return part(qkv, a.heads + group, low, count);
  }
  template <class M>
  M value(M qkv, std::int64_t low, std::int64_t count) const {
    return part(qkv, a.heads + a.kv_heads + group, low, count);
  }
  template <class M>
  M output(M out, std::int64_t low, std::int64_t count) const {
    return part(out, head, low, count);
  }
  std::int64_t document_start(std::int64_t place) const {
    return a.documents.start == nullptr ? 0 : a.documents.start[first + place];
  }
  float& log_sum(std::int64_t place) const { return a.log_sum[head * a.qkv.rows + first + place]; }

 private:
  template <class M>
  M part(M packed, std::int64_t index, std::int64_t low, std::int64_t count) const {
    return packed.rows_at(first + low, count).cols_at(index * a.head_size, a.head_size);
  }
};

/// Queries [low, end) of a row and the first key that any of them looks at.
struct Strip {
  std::int64_t low, end, key;

  Strip(const Head& head, std::int64_t index, std::int64_t height)
      : low(index * height), end(std::min<std::int64_t>(head.a.sequence, low + height)), key(low) {
    for (std::int64_t i = low; i < end; ++i) key = std::min(key, head.document_start(i));
  }
  std::int64_t queries() const { return end - low; }
  std::int64_t keys() const { return end - key; }
};

constexpr double log2_e = 1.4426950408889634;
inline std::int64_t rows_of(const Attention& a) { return a.qkv.rows / a.sequence; }

constexpr float masked_score = -std::numeric_limits<float>::infinity();

/// Scores of the query at `place`, of keys [first, first + count): those that it may not look at become minus
/// infinity, and so does what fills the last group of `group` columns.
inline void mask(float* scores, const Head& head, std::int64_t place, std::int64_t first, std::int64_t count,
                 std::int64_t group) {
  const std::int64_t end = round_up(count, group);
  const std::int64_t low = std::clamp<std::int64_t>(head.document_start(place) - first, 0, end),
                     high = std::clamp<std::int64_t>(place + 1 - first, low, std::max(low, count));
  std::fill(scores, scores + low, masked_score);
  std::fill(scores + high, scores + end, masked_score);
}

/// Pieces of memory one after the other, each on a cache line. Without memory it only measures.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    const std::int64_t at = bytes_;
    bytes_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), 64);
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + at);
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::int64_t bytes_ = 0;
};

/// Block sizes that order additions, for Kernels::identity().
std::string attention_identity(DType type);

}  // namespace holdfast::kernels
