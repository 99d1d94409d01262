#pragma once
// Causal attention in bf16 on the CPU. Forward: exact softmax over strips of queries. Backward: pairs of a
// block of queries and a block of keys, probabilities again from the stored log-sum-exp. Products add in
// fp32; probabilities and their gradients are rounded to bf16 for the products they go into, results once, at
// the end.
//
// The work comes as tasks that write disjoint results, first all of pack(), then the others. Who runs them on
// which thread is the caller's business; `thread` numbers the scratch memory, from 0.
#include <cstddef>
#include <cstdint>

#include "src/kernels/bf16_block.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::kernels {

class Bf16AttentionForward {
 public:
  Bf16AttentionForward(const Attention& attention, const Bf16Blocks& blocks)
      : a_(attention), blocks_(blocks) {}
  /// Bytes of Attention::workspace when `threads` run tasks.
  std::int64_t workspace(int threads) const;

  /// Per key/value head of a row: packs keys and values.
  std::int64_t pack_tasks() const;
  void pack(std::int64_t task) const;
  /// Per strip of queries of a query head of a row. Early tasks are the longer ones.
  std::int64_t tasks() const;
  void run(std::int64_t task, int thread) const;

 private:
  const Attention& a_;
  const Bf16Blocks& blocks_;
};

class Bf16AttentionBackward {
 public:
  /// heads: a task does all of a key/value head of a row. blocks: a task does the gradient of a block of
  /// queries, or those of a block of keys and values; for more threads than there are such heads, because
  /// scores and their gradients are computed twice (7 products instead of 5). Every gradient is the same sum
  /// in the same order.
  enum class Schedule { heads, blocks };
  /// The one that ends earlier on so many threads.
  static Schedule quicker(const Attention& attention, int threads);

  Bf16AttentionBackward(const Attention& attention, const AttentionGradient& gradient,
                        const Bf16Blocks& blocks, Schedule schedule)
      : a_(attention), g_(gradient), blocks_(blocks), schedule_(schedule) {}
  /// Bytes of Attention::workspace when `threads` run tasks.
  std::int64_t workspace(int threads) const;

  /// Per key/value head of a row: packs keys and values.
  std::int64_t pack_tasks() const;
  void pack(std::int64_t task) const;
  /// Early tasks are the longer ones.
  std::int64_t tasks() const;
  void run(std::int64_t task, int thread) const;

 private:
  struct Packed;
  struct Scratch;
  class Pair;

  Packed packed(std::int64_t kv_head) const;
  std::int64_t scratch_bytes() const;
  void gradients_of_head(std::int64_t kv_head, const Scratch& my) const;
  void gradients_of_keys(std::int64_t kv_head, std::int64_t block, const Scratch& my) const;
  void gradient_of_queries(std::int64_t head, std::int64_t block, const Scratch& my) const;

  const Attention& a_;
  const AttentionGradient& g_;
  const Bf16Blocks& blocks_;
  Schedule schedule_;
};

}  // namespace holdfast::kernels
