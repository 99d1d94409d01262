#pragma once
// Causal attention in fp32 on the CPU, a strip of scores at a time: 64 queries of one head against the keys
// before them. The strip stays in the cache, its softmax is exact; the backward pass computes it again from
// the stored log-sum-exp. Tasks write disjoint results; `thread` numbers the scratch memory. OpenBLAS
// multiplies and has to be single-threaded inside a task.
#include <cstdint>

#include "src/kernels/kernels.hpp"

namespace holdfast::kernels {

class Fp32Attention {
 public:
  /// Queries per strip: orders the additions of key gradients, part of the numerics identity.
  static constexpr std::int64_t block = 64;

  explicit Fp32Attention(const Attention& attention) : a_(attention) {}
  /// Bytes of Attention::workspace when `threads` run tasks.
  std::int64_t workspace(int threads) const;

  /// Forward: per strip of queries of a query head of a row. Early tasks are the longer ones.
  std::int64_t strip_tasks() const;
  void strip(std::int64_t task, int thread) const;
  /// Backward: per key/value head of a row. The task owns that head's gradients and adds to them query head
  /// by query head, strip by strip, in this order.
  std::int64_t head_tasks() const;
  void head_backward(const AttentionGradient& gradient, std::int64_t task, int thread) const;

 private:
  std::int64_t strips() const { return (a_.sequence + block - 1) / block; }
  float* scratch(int thread) const {
    return reinterpret_cast<float*>(a_.workspace) + thread * 2 * block * a_.sequence;
  }

  const Attention& a_;
};

}  // namespace holdfast::kernels
