#pragma once
// Matrix products of bf16 on all threads, from the blocks of bf16_block.hpp. Rows of the result are done in
// steps: first the threads pack the step's rows of the left operand together, then each takes blocks of
// columns, packs the right operand's columns and multiplies. Sums over k are whole before anything is
// rounded.
#include <cstddef>
#include <memory>
#include <vector>

#include "src/kernels/bf16_block.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::kernels {

/// Memory for products, allocated once: its size follows from the number of threads. (Only sums over k above
/// max_k with more than max_sums / 32 columns make it grow.)
class Bf16Scratch {
 public:
  static constexpr std::int64_t left_bytes = 8 << 20;     ///< shared by all threads
  static constexpr std::int64_t right_bytes = 512 << 10;  ///< per thread: half of a small second-level cache
  static constexpr std::int64_t max_k = 4096;             ///< packed at a time
  static constexpr std::int64_t max_sums = 1 << 20;       ///< fp32, shared, for longer sums

  explicit Bf16Scratch(int threads);
  std::byte* left() { return left_.get(); }
  std::byte* right(int thread) { return right_.get() + thread * right_bytes; }
  float* sums(std::int64_t count);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  static Memory allocate(std::int64_t bytes);

  Memory left_, right_, sums_;
  std::int64_t sums_count_ = max_sums;
};

/// One product; arguments as for Kernels::matmul. For each step in order: all pack() tasks, then all
/// multiply() tasks, both in any order and on any thread below `threads`.
class Bf16Matmul {
 public:
  Bf16Matmul(const Bf16Blocks& blocks, Bf16Scratch& scratch, int threads, Mat y, ConstMat a, bool transpose_a,
             ConstMat b, bool transpose_b, Write write, ConstMat bias);

  std::int64_t steps() const { return row_steps_ * k_steps_; }
  std::int64_t pack_tasks(std::int64_t step) const;
  void pack(std::int64_t step, std::int64_t task) const;
  std::int64_t multiply_tasks(std::int64_t step) const;
  void multiply(std::int64_t step, std::int64_t task, int thread) const;

 private:
  /// Rows and k of a step: all k of some rows, then the next rows.
  struct Step {
    std::int64_t row, rows, first_k, k;
  };
  Step at(std::int64_t step) const;
  /// Asks for a block of y, so that it is in the cache when its product is.
  void fetch(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) const;
  /// y rows [row, row + rows) x columns [col, col + cols) from finished sums.
  void finish(const float* sums, std::int64_t stride, std::int64_t row, std::int64_t rows, std::int64_t col,
              std::int64_t cols) const;

  const Bf16Blocks& blocks_;
  Bf16Scratch& scratch_;
  Mat y_;
  ConstMat a_, b_, bias_;
  bool transpose_a_, transpose_b_;
  Write write_;
  bool direct_;     ///< sums are the result: they are written where they belong
  std::int64_t k_;  ///< all of it
  std::int64_t row_steps_, k_steps_, step_rows_;
  std::int64_t chunk_rows_, block_cols_;  ///< of a task
  float* sums_ = nullptr;                 ///< of a step's rows, [row][y.cols], when k takes several steps
};

/// As make_cpu_kernels(threads), but with a certain path.
std::unique_ptr<Kernels> make_cpu_kernels(int threads, const Bf16Blocks& blocks);

}  // namespace holdfast::kernels
