#pragma once
// A product as the problem that cuBLASLt solves, D = op(A) op(B) (+ C) (+ bias) with column-major matrices,
// and which such problems a GPU can do. Pure: no library is asked.
//
// Row-major memory read by columns is the transposed matrix, so y = op(a) op(b) is asked for as y^T = op(b)^T
// op(a)^T: A is the memory of b, B that of a, D that of y, and a flag of ours is the library's own. Both
// operands of an 8-bit product lie along k (b transposed, a not), which is "TN" there: the one form that
// Hopper's and Ada's 8-bit tensor cores have.
#include <compare>
#include <cstdint>
#include <string>

#include "src/cuda/gemm/gemm.hpp"

namespace holdfast::cuda {

/// A column-major matrix as it lies in memory.
struct PlanMatrix {
  DType type = DType::fp32;
  std::int64_t rows = 0, cols = 0;
  std::int64_t leading = 0;  ///< elements from one column to the next
  int alignment =
      0;  ///< of its address, in bytes: a power of two up to 16, all that tensor cores and TMA ask for
  auto operator<=>(const PlanMatrix&) const = default;
};

/// All that the choice of an algorithm may depend on. alpha is 1; C is D, with beta 1 when `add` is set, else
/// 0. Sums are in fp32 (CUBLAS_COMPUTE_32F), and 8-bit sums too: the tensor cores' own accumulator keeps
/// fewer bits, "fast accumulation", and is off in every product.
struct ProductPlan {
  PlanMatrix a, b, d;
  bool transpose_a = false, transpose_b = false;
  bool add = false;
  bool bias = false;  ///< a column of d.rows elements, added to every column of D
  DType bias_type = DType::fp32;
  int bias_alignment = 0;

  std::int64_t inner() const { return transpose_a ? a.rows : a.cols; }
  bool fp8() const { return is_fp8(a.type); }
  auto operator<=>(const ProductPlan&) const = default;
};

/// The same order as in the plan. d is read too when the plan adds.
struct ProductPointers {
  const void *a = nullptr, *b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  const float *scale_a = nullptr, *scale_b = nullptr;  ///< on the device, of 8-bit operands
};

/// Shapes and types must be those that kernels::Kernels::matmul() and matmul_fp8() allow.
ProductPlan plan_product(const Product& product);
ProductPointers pointers_of(const Product& product);

/// One line that says all of the plan but whether it adds, in our row-major terms: "4096x11008x4096
/// bf16*bf16->fp32 nt ld 4096,4096,11008 align 16,16,16". The names of choices of algorithms, so it must not
/// change between versions without need. A product that is added is computed by the algorithm of the product
/// alone, so that a gradient has the same bits whether the product adds it or a kernel behind it.
std::string key_of(const ProductPlan& plan);

/// "y (4096 x 11008, bf16) = a (4096 x 4096, bf16) * b (11008 x 4096, bf16, transposed)": for messages; sizes
/// as in memory.
std::string describe(const ProductPlan& plan);

/// Throws Error (usage) when no algorithm of the library can do it on this GPU and why is known: 8-bit
/// products need compute capability 8.9, and rows of 16 bytes.
void require_supported(const ProductPlan& plan, const GpuTraits& gpu);

/// No sum has a term, or no element has a sum.
bool is_empty(const ProductPlan& plan);
/// Such a product: y keeps what it has (add), becomes the bias in every row (of the same type then), or zero.
void run_empty(Runtime& runtime, StreamHandle stream, const Product& product);

/// Bytes from the first element to behind the last one.
std::int64_t extent_bytes(const PlanMatrix& matrix);

}  // namespace holdfast::cuda
