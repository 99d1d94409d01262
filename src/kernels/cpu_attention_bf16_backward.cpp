// Pair does the work on a block of 192 queries and a block of 96 keys. begin() packs the queries and their
// output gradients and takes from each query its log-sum and the product of output and gradient.
// probabilities() then computes scores and gradients of probabilities, masks, and leaves both as bf16;
// to_queries() and to_keys() add their products to the sums of d_query, d_key and d_value, which stay in fp32
// until write_queries() and write_keys() round them.
//
// With the schedule `heads` a task goes through all pairs of a key/value head (gradients_of_head); with
// `blocks` it keeps one block of keys, or one of queries, and goes through the blocks opposite. Each sum
// meets its blocks in the same order either way, and its first block is written instead of added. Beside the
// call's inputs, tasks share nothing but the keys and values that pack() has packed before any of them.
#include <algorithm>

#include "src/kernels/cpu_attention.hpp"
#include "src/kernels/cpu_attention_bf16.hpp"
#include "src/kernels/cpu_attention_rows.hpp"

namespace holdfast::kernels {

namespace {

/// Queries and keys of a pair of blocks: their probabilities and the sums that they go into stay in the
/// cache. Bits do not depend on either.
constexpr std::int64_t query_block = 192, key_block = 96;
static_assert(query_block % key_block == 0, "the first queries that look at a block of keys are one block");
static_assert(key_block % Bf16Blocks::k_step == 0, "blocks end where sums may be cut");
static_assert(key_block % Bf16Blocks::right_width == 0, "blocks begin with a panel");
static_assert(key_block % row_group == 0, "blocks are whole groups");

/// Rows whose scores are computed at a time: whole left panels that stay in the first-level cache.
std::int64_t rows_at_once(const Bf16Blocks& blocks) { return 36 / blocks.left_width() * blocks.left_width(); }

std::int64_t query_blocks(const Attention& a) { return (a.sequence + query_block - 1) / query_block; }
std::int64_t key_blocks(const Attention& a) { return (a.sequence + key_block - 1) / key_block; }

}  // namespace

/// Packed keys and values of one key/value head, right operands: of scores and of the gradients of
/// probabilities (d x s), of the gradients of queries (s x d).
struct Bf16AttentionBackward::Packed {
  std::byte *keys, *values, *key_rows;
  std::int64_t bytes;

  Packed(const Bf16Blocks& blocks, const Attention& a, std::byte* memory) {
    Pieces pieces(memory);
    keys = pieces.take<std::byte>(blocks.right_bytes(a.head_size, a.sequence));
    values = pieces.take<std::byte>(blocks.right_bytes(a.head_size, a.sequence));
    key_rows = pieces.take<std::byte>(blocks.right_bytes(a.sequence, a.head_size));
    bytes = pieces.bytes();
  }
};

/// A thread's.
struct Bf16AttentionBackward::Scratch {
  std::byte *queries, *d_out;          ///< a block of queries, left operands
  std::byte *query_rows, *d_out_rows;  ///< the same, right operands
  float *top, *mean;                   ///< [queries], log2 of the sum of powers; sum of d_out * out
  float *scores, *dp;                  ///< rows_at_once() x keys
  Bf16 *p, *ds;                        ///< queries x keys
  std::byte *packed, *transposed;      ///< one of them, left operand
  float *d_query, *d_key, *d_value;    ///< queries x d, a row's or a block's keys x d, the same
  std::int64_t bytes;

  Scratch(const Bf16Blocks& blocks, const Attention& a, Schedule schedule, std::byte* memory) {
    Pieces pieces(memory);
    for (std::byte** left : {&queries, &d_out})
      *left = pieces.take<std::byte>(blocks.left_bytes(query_block, a.head_size));
    for (std::byte** right : {&query_rows, &d_out_rows})
      *right = pieces.take<std::byte>(blocks.right_bytes(query_block, a.head_size));
    for (float** numbers : {&top, &mean}) *numbers = pieces.take<float>(query_block);
    for (float** x : {&scores, &dp}) *x = pieces.take<float>(rows_at_once(blocks) * key_block);
    for (Bf16** x : {&p, &ds}) *x = pieces.take<Bf16>(query_block * key_block);
    packed = pieces.take<std::byte>(blocks.left_bytes(query_block, key_block));
    transposed = pieces.take<std::byte>(blocks.left_bytes(key_block, query_block));
    d_query = pieces.take<float>(query_block * a.head_size);
    for (float** sums : {&d_key, &d_value})
      *sums = pieces.take<float>((schedule == Schedule::heads ? a.sequence : key_block) * a.head_size);
    bytes = pieces.bytes();
  }
};

/// A block of queries of one head against blocks of keys, one after the other.
class Bf16AttentionBackward::Pair {
 public:
  Pair(const Bf16AttentionBackward& all, const Head& head, const Packed& keys, const Scratch& my)
      : all_(all), blocks_(all.blocks_), head_(head), keys_(keys), my_(my), d_(all.a_.head_size) {}

  /// Takes the queries of `strip`; `for_keys`: also as right operands, for the gradients of keys and values.
  void begin(const Strip& strip, bool for_keys) {
    strip_ = strip;
    n_ = strip.queries();
    const ConstMat q = head_.query(all_.a_.qkv, strip.low, n_),
                   dy = head_.output(all_.g_.d_out, strip.low, n_),
                   y = head_.output(ConstMat(all_.a_.out), strip.low, n_);
    const auto *q0 = q.row<const Bf16>(0), *dy0 = dy.row<const Bf16>(0), *y0 = y.row<const Bf16>(0);
    queries_ = blocks_.pack_left(my_.queries, q0, q.stride, false, n_, d_);
    d_out_ = blocks_.pack_left(my_.d_out, dy0, dy.stride, false, n_, d_);
    if (for_keys) {
      query_rows_ = blocks_.pack_right(my_.query_rows, q0, q.stride, false, n_, d_);
      d_out_rows_ = blocks_.pack_right(my_.d_out_rows, dy0, dy.stride, false, n_, d_);
    }
    for (std::int64_t r = 0; r < n_; ++r) {
      my_.top[r] = static_cast<float>(static_cast<double>(head_.log_sum(strip.low + r)) * log2_e);
      my_.mean[r] = row_product(dy0 + r * dy.stride, y0 + r * y.stride, d_);
    }
  }

  /// Probabilities and their gradients (without the scale of the scores) for the block of keys that begins
  /// at `key`.
  void probabilities(std::int64_t key) {
    key_ = key;
    count_ = std::min(key_block, all_.a_.sequence - key);
    const std::int64_t depth = Bf16Blocks::depth_of(d_), step = rows_at_once(blocks_);
    const Bf16Panels keys = blocks_.right_at({keys_.keys, depth}, 0, key),
                     values = blocks_.right_at({keys_.values, depth}, 0, key);
    const RowMath& math = row_math();
    const float scale = static_cast<float>(all_.a_.score_scale() * log2_e);
    for (std::int64_t first = 0; first < n_; first += step) {
      const std::int64_t rows = std::min(step, n_ - first), seen = seen_by(first + rows);
      blocks_.product(my_.scores, key_block, blocks_.left_at(queries_, first, 0), keys, rows, seen, d_,
                      false);
      blocks_.product(my_.dp, key_block, blocks_.left_at(d_out_, first, 0), values, rows, seen, d_, false);
      for (std::int64_t r = first; r < first + rows; ++r) {
        float* scores = my_.scores + (r - first) * key_block;
        mask(scores, head_, strip_.low + r, key, seen, row_group);
        math.power_gradients(my_.p + r * key_block, my_.ds + r * key_block, scores,
                             my_.dp + (r - first) * key_block, round_up(seen, row_group), scale, my_.top[r],
                             my_.mean[r]);
        for (Bf16* row : {my_.p + r * key_block, my_.ds + r * key_block})
          std::fill(row + seen, row + count_, Bf16{});
      }
    }
  }
  /// d_query (+)= ds * keys. Sums end at the diagonal: zeros behind it are not added.
  void to_queries(bool add) {
    const Bf16Panels ds = blocks_.pack_left(my_.packed, my_.ds, key_block, false, n_, count_);
    const Bf16Panels keys =
        blocks_.right_at({keys_.key_rows, Bf16Blocks::depth_of(all_.a_.sequence)}, key_, 0);
    const std::int64_t step = on_diagonal() ? blocks_.left_width() : n_;
    for (std::int64_t r = 0; r < n_; r += step) {
      const std::int64_t rows = std::min(step, n_ - r), seen = seen_by(r + rows);
      // Where keys end in the middle of a step, what follows them meets zeros.
      blocks_.product(my_.d_query + r * d_, d_, blocks_.left_at(ds, r, 0), keys, rows, d_,
                      std::min(count_, Bf16Blocks::depth_of(seen)), add);
    }
  }
  /// d_value (+)= p^T * d_out, d_key (+)= ds^T * queries, the block's rows. Sums begin at the diagonal.
  void to_keys(float* d_key, float* d_value, bool add) {
    to_keys(d_value, my_.p, d_out_rows_, add);
    to_keys(d_key, my_.ds, query_rows_, add);
  }

  void write_queries() const {
    write(head_.query(all_.g_.d_qkv, strip_.low, n_), my_.d_query, all_.a_.score_scale());
  }
  void write_keys(std::int64_t key, std::int64_t count) const {
    write(head_.key(all_.g_.d_qkv, key, count), my_.d_key, all_.a_.score_scale());
    write(head_.value(all_.g_.d_qkv, key, count), my_.d_value, 1.0);
  }

 private:
  bool on_diagonal() const { return key_ + count_ > strip_.low; }
  /// How many keys of the block the first `rows` queries look at together.
  std::int64_t seen_by(std::int64_t rows) const {
    return std::clamp<std::int64_t>(strip_.low + rows - key_, 0, count_);
  }

  void to_keys(float* sums, const Bf16* left, Bf16Panels right, bool add) {
    const Bf16Panels transposed = blocks_.pack_left(my_.transposed, left, key_block, true, count_, n_);
    const std::int64_t step = on_diagonal() ? blocks_.left_width() : count_;
    for (std::int64_t key = 0; key < count_; key += step) {
      const std::int64_t query =
          std::max<std::int64_t>(0, key_ + key - strip_.low) / Bf16Blocks::k_step * Bf16Blocks::k_step;
      blocks_.product(sums + key * d_, d_, blocks_.left_at(transposed, key, query),
                      blocks_.right_at(right, query, 0), std::min(step, count_ - key), d_, n_ - query, add);
    }
  }
  static void write(const Mat& to, const float* from, double factor) {
    for (std::int64_t r = 0; r < to.rows; ++r)
      scaled(to.row<Bf16>(r), from + r * to.cols, to.cols, static_cast<float>(factor));
  }

  const Bf16AttentionBackward& all_;
  const Bf16Blocks& blocks_;
  const Head& head_;
  const Packed& keys_;
  const Scratch& my_;
  std::int64_t d_;
  Strip strip_{head_, 0, query_block};
  std::int64_t n_ = 0, key_ = 0, count_ = 0;
  Bf16Panels queries_, d_out_, query_rows_, d_out_rows_;
};

Bf16AttentionBackward::Packed Bf16AttentionBackward::packed(std::int64_t kv_head) const {
  return {blocks_, a_, a_.workspace + kv_head * Packed(blocks_, a_, nullptr).bytes};
}
std::int64_t Bf16AttentionBackward::scratch_bytes() const {
  return Scratch(blocks_, a_, schedule_, nullptr).bytes;
}
std::int64_t Bf16AttentionBackward::workspace(int threads) const {
  return pack_tasks() * Packed(blocks_, a_, nullptr).bytes +
         std::min<std::int64_t>(threads, tasks()) * scratch_bytes();
}

std::int64_t Bf16AttentionBackward::pack_tasks() const { return rows_of(a_) * a_.kv_heads; }

void Bf16AttentionBackward::pack(std::int64_t task) const {
  const std::int64_t s = a_.sequence, d = a_.head_size;
  const Head head(a_, task / a_.kv_heads, task % a_.kv_heads * (a_.heads / a_.kv_heads));
  const Packed to = packed(task);
  const ConstMat keys = head.key(a_.qkv, 0, s), values = head.value(a_.qkv, 0, s);
  blocks_.pack_right(to.keys, keys.row<const Bf16>(0), keys.stride, true, d, s);
  blocks_.pack_right(to.values, values.row<const Bf16>(0), values.stride, true, d, s);
  blocks_.pack_right(to.key_rows, keys.row<const Bf16>(0), keys.stride, false, s, d);
}

Bf16AttentionBackward::Schedule Bf16AttentionBackward::quicker(const Attention& a, int threads) {
  const std::int64_t heads = rows_of(a) * a.kv_heads, turns = (heads + threads - 1) / threads;
  return 5 * turns * threads > 7 * heads ? Schedule::blocks : Schedule::heads;
}

std::int64_t Bf16AttentionBackward::tasks() const {
  if (schedule_ == Schedule::heads) return rows_of(a_) * a_.kv_heads;
  return rows_of(a_) * (a_.kv_heads * key_blocks(a_) + a_.heads * query_blocks(a_));
}

void Bf16AttentionBackward::run(std::int64_t task, int thread) const {
  const Scratch my(
      blocks_, a_, schedule_,
      a_.workspace + pack_tasks() * Packed(blocks_, a_, nullptr).bytes + thread * scratch_bytes());
  const std::int64_t heads = rows_of(a_) * a_.heads, kv_heads = rows_of(a_) * a_.kv_heads;
  if (schedule_ == Schedule::heads) {
    gradients_of_head(task, my);
  } else if (task < kv_heads * key_blocks(a_)) {
    // Whole groups of heads look at a block of keys, and the more queries the earlier it is.
    gradients_of_keys(task % kv_heads, task / kv_heads, my);
  } else {
    task -= kv_heads * key_blocks(a_);
    gradient_of_queries(task % heads, query_blocks(a_) - 1 - task / heads, my);
  }
}

void Bf16AttentionBackward::gradients_of_head(std::int64_t kv, const Scratch& my) const {
  const std::int64_t group = a_.heads / a_.kv_heads, first_head = kv % a_.kv_heads * group;
  const Packed keys = packed(kv);
  for (std::int64_t h = first_head; h < first_head + group; ++h) {
    const Head head(a_, kv / a_.kv_heads, h);
    Pair pair(*this, head, keys, my);
    for (std::int64_t i = 0; i < query_blocks(a_); ++i) {
      const Strip strip(head, i, query_block);
      pair.begin(strip, true);
      const std::int64_t first = strip.key / key_block;
      for (std::int64_t j = first; j * key_block < strip.end; ++j) {
        pair.probabilities(j * key_block);
        pair.to_queries(j > first);
        // The first queries that look at a block of keys lie beside it, in the group's first head.
        pair.to_keys(my.d_key + j * key_block * a_.head_size, my.d_value + j * key_block * a_.head_size,
                     h > first_head || i > j * key_block / query_block);
      }
      pair.write_queries();
    }
    if (h + 1 == first_head + group) pair.write_keys(0, a_.sequence);
  }
}

void Bf16AttentionBackward::gradients_of_keys(std::int64_t kv, std::int64_t j, const Scratch& my) const {
  const std::int64_t group = a_.heads / a_.kv_heads, first_head = kv % a_.kv_heads * group;
  const std::int64_t key = j * key_block, count = std::min(key_block, a_.sequence - key);
  const Packed keys = packed(kv);
  for (std::int64_t h = first_head; h < first_head + group; ++h) {
    const Head head(a_, kv / a_.kv_heads, h);
    Pair pair(*this, head, keys, my);
    for (std::int64_t i = key / query_block; i < query_blocks(a_); ++i) {
      const Strip strip(head, i, query_block);
      if (strip.key >= key + count) continue;
      pair.begin(strip, true);
      pair.probabilities(key);
      pair.to_keys(my.d_key, my.d_value, h > first_head || i > key / query_block);
    }
    if (h + 1 == first_head + group) pair.write_keys(key, count);
  }
}

void Bf16AttentionBackward::gradient_of_queries(std::int64_t row_head, std::int64_t i,
                                                const Scratch& my) const {
  const Head head(a_, row_head / a_.heads, row_head % a_.heads);
  const Packed keys = packed(row_head / a_.heads * a_.kv_heads + head.group);
  Pair pair(*this, head, keys, my);
  const Strip strip(head, i, query_block);
  pair.begin(strip, false);
  const std::int64_t first = strip.key / key_block;
  for (std::int64_t j = first; j * key_block < strip.end; ++j) {
    pair.probabilities(j * key_block);
    pair.to_queries(j > first);
  }
  pair.write_queries();
}

}  // namespace holdfast::kernels
