#pragma once
// What attention in bf16 does with rows of scores between its matrix products. Scores and probabilities are
// fp32 inside, and powers of two instead of e: p = 2^(score * scale * log2 e - log2 of the sum) spares a
// multiplication. A score of minus infinity is masked: its probability is exactly 0. What is rounded to bf16
// goes into products, which take subnormal numbers for zero; so does the rounding.
//
// Rows are handled in groups of 16 columns: `count` is a multiple of 16. Bits depend on neither the widths of
// vectors nor the implementation.
#include <cstdint>

#include "src/tensor/dtype.hpp"

namespace holdfast::kernels {

using tensor::Bf16;

constexpr std::int64_t row_group = 16;

/// One number per column modulo 16.
struct RowLanes {
  float lane[row_group];
};
void fill(RowLanes& lanes, float x);
float largest(const RowLanes& lanes);
float sum(RowLanes lanes);

struct RowMath {
  /// Takes a part of a row into account. NaNs are passed over.
  void (*largest)(RowLanes& lanes, const float* scores, std::int64_t count);
  /// p[j] = 2^(scores[j] * scale - top), rounded; adds the unrounded powers to `sums`.
  void (*powers)(Bf16* p, RowLanes& sums, const float* scores, std::int64_t count, float scale, float top);
  /// p[j] as above and ds[j] = p[j] * (dp[j] - mean), from the unrounded p.
  void (*power_gradients)(Bf16* p, Bf16* ds, const float* scores, const float* dp, std::int64_t count,
                          float scale, float top, float mean);
};
/// For any processor.
const RowMath& plain_row_math();
/// With AVX-512 and its conversion to bf16; null where there is none.
const RowMath* avx512_row_math();
/// The fastest that this processor offers.
const RowMath& row_math();

/// to[j] = from[j] * factor, rounded; any count.
void scaled(Bf16* to, const float* from, std::int64_t count, float factor);
/// Sum of a[j] * b[j]; any count.
float row_product(const Bf16* a, const Bf16* b, std::int64_t count);

}  // namespace holdfast::kernels
