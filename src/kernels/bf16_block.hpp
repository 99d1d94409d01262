#pragma once
// Products of bf16 blocks with fp32 results: what matrix products and attention are made of. Operands are
// first packed into panels in the order in which the instructions of the chosen path read them; packing also
// transposes, so that all four forms of a product cost the same.
//
// Bits. Every element of a result is a sum over k in one order in fp32, which depends on the path and on the
// values alone: not on where the element lies in its block, on the block's size, on how rows and columns are
// cut into blocks or on alignment. A sum over k that is cut into several products with `accumulate`, at
// multiples of k_step, is the same sum. The orders, s being the sum so far and x(i) the product of the
// elements at k = i, which is exact:
//   portable  s = s + x(i), i = 0, 1, 2, ...
//   avx512    s = (s + x(i + 1)) + x(i), i = 0, 2, 4, ...
//   amx       s = s + ((x(i) + x(i + 2) + ... + x(i + 30)) + (x(i + 1) + ... + x(i + 31))), i = 0, 32, ...,
//             where sums without parentheses go from left to right and begin with 0
// every + rounded once. avx512 and amx take subnormal operands for zero and flush subnormal sums to zero;
// portable keeps both. So the path belongs to the numerics identity.
//
// Everything here may be called from any thread at once; nothing allocates.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "src/tensor/dtype.hpp"

namespace holdfast::kernels {

using tensor::Bf16;

/// Which instructions multiply.
enum class Bf16Path {
  portable,  ///< converted to fp32: runs everywhere
  avx512,    ///< AVX512-BF16, vdpbf16ps
  amx,       ///< AMX-BF16, tdpbf16ps
};

/// A packed operand, or a part of one. Panels follow each other; see Bf16Blocks for their sizes.
struct Bf16Panels {
  const std::byte* data = nullptr;
  std::int64_t depth = 0;  ///< k that panels were packed for, rounded up to Bf16Blocks::k_step
};

class Bf16Blocks {
 public:
  static constexpr std::int64_t right_width = 32;  ///< columns of a right panel
  static constexpr std::int64_t k_step = 32;       ///< k is padded to multiples of it, with zeros
  static constexpr std::int64_t alignment = 64;    ///< bytes, of packed memory; other operands need none

  virtual ~Bf16Blocks() = default;
  virtual Bf16Path path() const = 0;
  /// "avx512-bf16"; what bits depend on is in it.
  virtual std::string name() const = 0;

  std::int64_t left_width() const { return left_width_; }  ///< rows of a left panel: at most 32
  static constexpr std::int64_t depth_of(std::int64_t k) { return (k + k_step - 1) / k_step * k_step; }
  /// Bytes of a packed left operand of rows x k, a packed right operand of k x cols.
  std::int64_t left_bytes(std::int64_t rows, std::int64_t k) const {
    return (rows + left_width_ - 1) / left_width_ * left_panel_bytes(depth_of(k));
  }
  std::int64_t right_bytes(std::int64_t k, std::int64_t cols) const {
    return (cols + right_width - 1) / right_width * right_panel_bytes(depth_of(k));
  }

  /// Packs rows x k elements, element (r, i) at source[r * stride + i], or transposed: source[i * stride +
  /// r]. `packed`: left_bytes(rows, k), aligned.
  Bf16Panels pack_left(std::byte* packed, const Bf16* source, std::int64_t stride, bool transposed,
                       std::int64_t rows, std::int64_t k) const;
  /// Packs k x cols elements, element (i, c) at source[i * stride + c], or transposed: source[c * stride +
  /// i].
  Bf16Panels pack_right(std::byte* packed, const Bf16* source, std::int64_t stride, bool transposed,
                        std::int64_t k, std::int64_t cols) const;

  /// The part of a packed operand that begins at this row (a multiple of left_width()) or column (of
  /// right_width) and this k (of k_step).
  Bf16Panels left_at(Bf16Panels left, std::int64_t row, std::int64_t k) const {
    return {left.data + row / left_width_ * left_panel_bytes(left.depth) + k * left_width_ * element_bytes_,
            left.depth};
  }
  Bf16Panels right_at(Bf16Panels right, std::int64_t k, std::int64_t col) const {
    return {
        right.data + col / right_width * right_panel_bytes(right.depth) + k * right_width * element_bytes_,
        right.depth};
  }

  /// c (rows x cols, fp32, `stride` elements between rows) = left * right, added to what c holds when
  /// `accumulate` is set (element by element in the order of the sum, as if the earlier products were part of
  /// it). k: at most the k that both were packed for; if less, a multiple of k_step.
  void product(float* c, std::int64_t stride, Bf16Panels left, Bf16Panels right, std::int64_t rows,
               std::int64_t cols, std::int64_t k, bool accumulate) const;

  /// The end of a product, for a block of its result y: y = sums (+ bias, a row), rounded to bf16 as
  /// to_bf16() does, or in fp32 and added to y when `add` is set.
  virtual void finish(Bf16* y, std::int64_t y_stride, const float* sums, std::int64_t stride,
                      const Bf16* bias, std::int64_t rows, std::int64_t cols) const;
  virtual void finish(float* y, std::int64_t y_stride, const float* sums, std::int64_t stride,
                      const Bf16* bias, bool add, std::int64_t rows, std::int64_t cols) const;

 protected:
  Bf16Blocks(std::int64_t left_width, std::int64_t element_bytes)
      : left_width_(left_width), element_bytes_(element_bytes) {}

 private:
  std::int64_t left_panel_bytes(std::int64_t depth) const { return depth * left_width_ * element_bytes_; }
  std::int64_t right_panel_bytes(std::int64_t depth) const { return depth * right_width * element_bytes_; }

  /// All panels of the left operand, one panel of the right one. Rows and columns (`count` of them) that a
  /// panel lacks are filled with zeros, and so is k up to depth_of(k). along_k: a row's (column's) elements
  /// are neighbours in memory, else an element's of the next row (column) is its neighbour.
  virtual void pack_left_panels(std::byte* packed, const Bf16* source, std::int64_t stride, bool along_k,
                                std::int64_t rows, std::int64_t k) const = 0;
  virtual void pack_right_panel(std::byte* packed, const Bf16* source, std::int64_t stride, bool along_k,
                                std::int64_t count, std::int64_t k) const = 0;
  /// product() of a left and a right panel: rows <= left_width(), cols <= right_width, k > 0.
  virtual void panel_product(float* c, std::int64_t stride, const std::byte* left, const std::byte* right,
                             std::int64_t rows, std::int64_t cols, std::int64_t k, bool accumulate) const = 0;
  /// Around panel products of one thread: AMX sets its tiles up.
  virtual void begin() const {}
  virtual void end() const {}

  std::int64_t left_width_, element_bytes_;
};

/// The fastest path that this processor (and the kernel: AMX needs its permission) offers; chosen once.
const Bf16Blocks& bf16_blocks();
/// A certain path; null when the processor does not have it.
const Bf16Blocks* bf16_blocks(Bf16Path path);
/// What the bits of bf16 products depend on, for Kernels::identity().
std::string bf16_identity(const Bf16Blocks& blocks = bf16_blocks());

}  // namespace holdfast::kernels
