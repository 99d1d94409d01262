#include "src/kernels/bf16_matmul.hpp"

#include <algorithm>
#include <new>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::kernels {

namespace {

constexpr std::int64_t group_rows = 96;  // packed or multiplied at once; all paths' left panels divide it
constexpr std::int64_t max_cols = 4 * Bf16Blocks::right_width;  // of a task

std::int64_t blocks_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }
std::int64_t rounded_up(std::int64_t count, std::int64_t size) { return blocks_of(count, size) * size; }

}  // namespace

void Bf16Scratch::Free::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t(Bf16Blocks::alignment));
}
Bf16Scratch::Memory Bf16Scratch::allocate(std::int64_t bytes) {
  return Memory(
      static_cast<std::byte*>(::operator new[](as_size(bytes), std::align_val_t(Bf16Blocks::alignment))));
}
Bf16Scratch::Bf16Scratch(int threads)
    : left_(allocate(left_bytes)), right_(allocate(threads * right_bytes)), sums_(allocate(max_sums * 4)) {}
float* Bf16Scratch::sums(std::int64_t count) {
  if (count > sums_count_) {
    sums_ = allocate(count * 4);
    sums_count_ = count;
  }
  return reinterpret_cast<float*>(sums_.get());
}

Bf16Matmul::Bf16Matmul(const Bf16Blocks& blocks, Bf16Scratch& scratch, int threads, Mat y, ConstMat a,
                       bool transpose_a, ConstMat b, bool transpose_b, Write write, ConstMat bias)
    : blocks_(blocks),
      scratch_(scratch),
      y_(y),
      a_(a),
      b_(b),
      bias_(bias),
      transpose_a_(transpose_a),
      transpose_b_(transpose_b),
      write_(write),
      direct_(y.type == DType::fp32 && write == Write::replace && !bias),
      k_(transpose_a ? a.rows : a.cols) {
  const std::int64_t left_width = blocks.left_width(), right_width = Bf16Blocks::right_width;
  const std::int64_t k = std::clamp<std::int64_t>(k_, 1, Bf16Scratch::max_k);
  k_steps_ = std::max<std::int64_t>(1, blocks_of(k_, Bf16Scratch::max_k));

  // As many rows per step as the shared memory holds, in equal steps: each packs the whole right operand.
  std::int64_t max_rows = Bf16Scratch::left_bytes / blocks.left_bytes(left_width, k) * left_width;
  const bool keeps_sums = k_steps_ > 1 && !direct_;
  if (keeps_sums)
    max_rows = std::clamp(Bf16Scratch::max_sums / std::max<std::int64_t>(1, y.cols) / left_width * left_width,
                          left_width, max_rows);
  row_steps_ = blocks_of(y.rows, max_rows);
  step_rows_ = row_steps_ == 0 ? left_width : rounded_up(blocks_of(y.rows, row_steps_), left_width);
  if (keeps_sums) sums_ = scratch.sums(step_rows_ * y.cols);

  // Enough tasks for the threads: narrower ones first, then fewer rows in each.
  block_cols_ = std::clamp(Bf16Scratch::right_bytes / blocks.right_bytes(k, right_width) * right_width,
                           right_width, max_cols);
  const auto col_tasks = [&] { return blocks_of(std::max<std::int64_t>(1, y.cols), block_cols_); };
  while (threads > 1 && block_cols_ > right_width && col_tasks() < 4 * threads)
    block_cols_ = rounded_up(block_cols_ / 2, right_width);
  const std::int64_t parts = threads == 1 ? 1 : blocks_of(4 * threads, col_tasks());
  chunk_rows_ = rounded_up(blocks_of(step_rows_, parts), left_width);
}

Bf16Matmul::Step Bf16Matmul::at(std::int64_t step) const {
  const std::int64_t row = step / k_steps_ * step_rows_, first_k = step % k_steps_ * Bf16Scratch::max_k;
  return {row, std::min(step_rows_, y_.rows - row), first_k, std::min(Bf16Scratch::max_k, k_ - first_k)};
}

std::int64_t Bf16Matmul::pack_tasks(std::int64_t step) const { return blocks_of(at(step).rows, group_rows); }

void Bf16Matmul::pack(std::int64_t step, std::int64_t task) const {
  const Step s = at(step);
  const std::int64_t row = task * group_rows, from = s.row + row;
  const auto* source =
      a_.row<const Bf16>(0) + (transpose_a_ ? s.first_k * a_.stride + from : from * a_.stride + s.first_k);
  blocks_.pack_left(scratch_.left() + blocks_.left_bytes(row, s.k), source, a_.stride, transpose_a_,
                    std::min(group_rows, s.rows - row), s.k);
}

std::int64_t Bf16Matmul::multiply_tasks(std::int64_t step) const {
  return blocks_of(at(step).rows, chunk_rows_) * blocks_of(y_.cols, block_cols_);
}

void Bf16Matmul::multiply(std::int64_t step, std::int64_t task, int thread) const {
  const Step s = at(step);
  const std::int64_t col_blocks = blocks_of(y_.cols, block_cols_);
  const std::int64_t first = task / col_blocks * chunk_rows_, end = std::min(first + chunk_rows_, s.rows);
  const std::int64_t col = task % col_blocks * block_cols_, cols = std::min(block_cols_, y_.cols - col);
  const auto* source =
      b_.row<const Bf16>(0) + (transpose_b_ ? col * b_.stride + s.first_k : s.first_k * b_.stride + col);
  const Bf16Panels right =
      blocks_.pack_right(scratch_.right(thread), source, b_.stride, transpose_b_, s.k, cols);
  const Bf16Panels left{scratch_.left(), Bf16Blocks::depth_of(s.k)};

  const bool accumulate = s.first_k > 0, last = s.first_k + s.k == k_;
  alignas(Bf16Blocks::alignment) float own[group_rows * max_cols];
  for (std::int64_t row = first; row < end; row += group_rows) {
    const std::int64_t rows = std::min(group_rows, end - row);
    float* sums = direct_            ? y_.row<float>(s.row + row) + col
                  : sums_ != nullptr ? sums_ + row * y_.cols + col
                                     : own;
    const std::int64_t stride = direct_ ? y_.stride : sums_ != nullptr ? y_.cols : cols;
    if (last) fetch(s.row + row, rows, col, cols);
    blocks_.product(sums, stride, blocks_.left_at(left, row, 0), right, rows, cols, s.k, accumulate);
    if (last && !direct_) finish(sums, stride, s.row + row, rows, col, cols);
  }
}

void Bf16Matmul::fetch(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) const {
  constexpr std::int64_t line = 64;
  const std::int64_t size = tensor::bytes_of(y_.type);
  for (std::int64_t r = row; r < row + rows; ++r) {
    const std::byte* at = y_.data + (r * y_.stride + col) * size;
    for (std::int64_t i = 0; i < cols * size; i += line) __builtin_prefetch(at + i, 1);
  }
}

void Bf16Matmul::finish(const float* sums, std::int64_t stride, std::int64_t row, std::int64_t rows,
                        std::int64_t col, std::int64_t cols) const {
  const Bf16* bias = bias_ ? bias_.row<const Bf16>(0) + col : nullptr;
  if (y_.type == DType::bf16)
    blocks_.finish(y_.row<Bf16>(row) + col, y_.stride, sums, stride, bias, rows, cols);
  else
    blocks_.finish(y_.row<float>(row) + col, y_.stride, sums, stride, bias, write_ == Write::add, rows, cols);
}

}  // namespace holdfast::kernels
