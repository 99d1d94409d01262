#include <algorithm>

#include "src/kernels/cpu_attention.hpp"
#include "src/kernels/cpu_attention_bf16.hpp"
#include "src/kernels/cpu_attention_rows.hpp"

namespace holdfast::kernels {

namespace {

/// Keys whose probabilities are rounded, packed and multiplied at a time: they stay in the cache. A multiple
/// of Bf16Blocks::k_step, so bits do not depend on it.
constexpr std::int64_t chunk = 512;
/// Queries of a strip, whole left panels: few enough for its scores to stay in the second-level cache, and
/// for few scores beyond the diagonal. Bits do not depend on it.
std::int64_t height_for(const Bf16Blocks& blocks) { return 36 / blocks.left_width() * blocks.left_width(); }

/// Packed keys and values of one key/value head: right operands of scores (d x s) and of results (s x d).
struct Packed {
  std::byte *keys, *values;
  std::int64_t bytes;

  Packed(const Bf16Blocks& blocks, const Attention& a, std::byte* memory) {
    Pieces pieces(memory);
    keys = pieces.take<std::byte>(blocks.right_bytes(a.head_size, a.sequence));
    values = pieces.take<std::byte>(blocks.right_bytes(a.sequence, a.head_size));
    bytes = pieces.bytes();
  }
};

/// A thread's.
struct Scratch {
  std::byte *queries, *p_packed;  ///< left operands
  float* scores;                  ///< strip x s
  Bf16* p;                        ///< strip x chunk
  float* out;                     ///< strip x d
  RowLanes *largest, *sums;       ///< [strip]
  float* top;                     ///< [strip], the largest scaled score
  std::int64_t score_stride, bytes;

  Scratch(const Bf16Blocks& blocks, const Attention& a, std::byte* memory) {
    Pieces pieces(memory);
    const std::int64_t height = height_for(blocks);
    // Never a power of two: multiples of those share few lines of the cache.
    score_stride = round_up(a.sequence, row_group) + row_group;
    queries = pieces.take<std::byte>(blocks.left_bytes(height, a.head_size));
    p_packed = pieces.take<std::byte>(blocks.left_bytes(height, chunk));
    p = pieces.take<Bf16>(height * chunk);
    out = pieces.take<float>(height * a.head_size);
    largest = pieces.take<RowLanes>(height);
    sums = pieces.take<RowLanes>(height);
    top = pieces.take<float>(height);
    scores = pieces.take<float>(height * score_stride);
    bytes = pieces.bytes();
  }
};

}  // namespace

std::int64_t Bf16AttentionForward::workspace(int threads) const {
  return pack_tasks() * Packed(blocks_, a_, nullptr).bytes +
         std::min<std::int64_t>(threads, tasks()) * Scratch(blocks_, a_, nullptr).bytes;
}

std::int64_t Bf16AttentionForward::pack_tasks() const { return rows_of(a_) * a_.kv_heads; }

void Bf16AttentionForward::pack(std::int64_t task) const {
  const std::int64_t s = a_.sequence, d = a_.head_size;
  const Head head(a_, task / a_.kv_heads, task % a_.kv_heads * (a_.heads / a_.kv_heads));
  const Packed to(blocks_, a_, a_.workspace + task * Packed(blocks_, a_, nullptr).bytes);
  const ConstMat keys = head.key(a_.qkv, 0, s), values = head.value(a_.qkv, 0, s);
  blocks_.pack_right(to.keys, keys.row<const Bf16>(0), keys.stride, true, d, s);
  blocks_.pack_right(to.values, values.row<const Bf16>(0), values.stride, false, s, d);
}

std::int64_t Bf16AttentionForward::tasks() const {
  const std::int64_t height = height_for(blocks_);
  return rows_of(a_) * a_.heads * ((a_.sequence + height - 1) / height);
}

void Bf16AttentionForward::run(std::int64_t task, int thread) const {
  const std::int64_t s = a_.sequence, d = a_.head_size, height = height_for(blocks_);
  const std::int64_t strips = (s + height - 1) / height;
  const Head head(a_, task / strips / a_.heads, task / strips % a_.heads);
  const Strip strip(head, strips - 1 - task % strips, height);
  const std::int64_t packed_bytes = Packed(blocks_, a_, nullptr).bytes;
  const Packed packed(blocks_, a_,
                      a_.workspace + (task / strips / a_.heads * a_.kv_heads + head.group) * packed_bytes);
  const Scratch my(blocks_, a_,
                   a_.workspace + pack_tasks() * packed_bytes + thread * Scratch(blocks_, a_, nullptr).bytes);
  const Bf16Panels keys{packed.keys, Bf16Blocks::depth_of(d)}, values{packed.values, Bf16Blocks::depth_of(s)};
  const std::int64_t first = strip.key / Bf16Blocks::k_step * Bf16Blocks::k_step, n = strip.queries();
  const RowMath& math = row_math();
  const float scale = static_cast<float>(a_.score_scale() * log2_e);

  const ConstMat q = head.query(a_.qkv, strip.low, n);
  const Bf16Panels queries = blocks_.pack_left(my.queries, q.row<const Bf16>(0), q.stride, false, n, d);
  for (std::int64_t r = 0; r < n; ++r) {
    fill(my.largest[r], masked_score);
    fill(my.sums[r], 0.0f);
  }
  for (std::int64_t key = first; key < strip.end; key += chunk) {
    const std::int64_t count = std::min(chunk, strip.end - key);
    float* scores = my.scores + (key - first);
    blocks_.product(scores, my.score_stride, queries, blocks_.right_at(keys, 0, key), n, count, d, false);
    for (std::int64_t r = 0; r < n; ++r) {
      float* row = scores + r * my.score_stride;
      mask(row, head, strip.low + r, key, count, row_group);
      math.largest(my.largest[r], row, round_up(count, row_group));
    }
  }
  for (std::int64_t r = 0; r < n; ++r) my.top[r] = largest(my.largest[r]) * scale;
  for (std::int64_t key = first; key < strip.end; key += chunk) {
    const std::int64_t count = std::min(chunk, strip.end - key);
    for (std::int64_t r = 0; r < n; ++r)
      math.powers(my.p + r * chunk, my.sums[r], my.scores + (key - first) + r * my.score_stride,
                  round_up(count, row_group), scale, my.top[r]);
    const Bf16Panels p = blocks_.pack_left(my.p_packed, my.p, chunk, false, n, count);
    blocks_.product(my.out, d, p, blocks_.right_at(values, key, 0), n, d,
                    std::min(Bf16Blocks::depth_of(count), s - key), key != first);
  }
  const Mat out = head.output(a_.out, strip.low, n);
  for (std::int64_t r = 0; r < n; ++r) {
    const float total = sum(my.sums[r]);
    scaled(out.row<Bf16>(r), my.out + r * d, d, 1.0f / total);
    head.log_sum(strip.low + r) =
        static_cast<float>((static_cast<double>(my.top[r]) + std::log2(static_cast<double>(total))) / log2_e);
  }
}

}  // namespace holdfast::kernels
