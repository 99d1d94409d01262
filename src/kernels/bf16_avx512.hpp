#pragma once
// Packing with AVX-512 (F, BW), for the paths whose processors have it. A "pair" is two bf16 numbers that
// follow each other along k, in one 32-bit word, the earlier one low: what vdpbf16ps and tdpbf16ps multiply.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#include "src/tensor/dtype.hpp"

// Functions are compiled for these instructions one by one; the rest of the program stays baseline x86-64.
#define HOLDFAST_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define HOLDFAST_AVX512_INLINE \
  inline __attribute__((always_inline, target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace holdfast::kernels::avx512 {

using tensor::Bf16;

/// Of the first n of 32 (of 16) lanes.
inline std::uint32_t first_lanes32(std::int64_t n) { return n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1; }
inline std::uint16_t first_lanes16(std::int64_t n) {
  return static_cast<std::uint16_t>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}

/// x[i] word j becomes x[j] word i.
HOLDFAST_AVX512_INLINE void transpose(__m512i (&x)[16]) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now x[4 g + w], 128-bit lane q: words 4 q + w of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
  for (int w = 0; w < 4; ++w) {
    const __m512i a = _mm512_shuffle_i32x4(x[w], x[4 + w], 0x88),
                  b = _mm512_shuffle_i32x4(x[w], x[4 + w], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(x[8 + w], x[12 + w], 0x88),
                  d = _mm512_shuffle_i32x4(x[8 + w], x[12 + w], 0xdd);
    t[w] = _mm512_shuffle_i32x4(a, c, 0x88);
    t[8 + w] = _mm512_shuffle_i32x4(a, c, 0xdd);
    t[4 + w] = _mm512_shuffle_i32x4(b, d, 0x88);
    t[12 + w] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = t[i];
}

/// Operands lie in rows far apart, which the processor's own prefetching follows badly.
constexpr std::int64_t lines_ahead = 4, rows_ahead = 48;

/// 16 rows' pairs from 32 elements along k: x[i] word j = pair j of row i. Rows and elements that do not
/// exist are zero.
HOLDFAST_AVX512_INLINE void load_rows(__m512i (&x)[16], const Bf16* source, std::int64_t stride,
                                      std::int64_t rows, std::int64_t k) {
  const __mmask32 mask = first_lanes32(k);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(source + i * stride + 32 * lines_ahead), _MM_HINT_T0);
    x[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, source + i * stride) : _mm512_setzero_si512();
  }
}

/// For interleaving two vectors of 32 elements: the pairs of the first and of the last 16.
struct PairOrder {
  __m512i low, high;
};
HOLDFAST_AVX512_INLINE PairOrder pair_order() {
  // Word 2 i takes element i of the first vector, word 2 i + 1 element i of the second one (index 32 + i).
  const __m512i index =
      _mm512_set_epi32(0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008,
                       0x270007, 0x260006, 0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
  return {index, _mm512_add_epi16(index, _mm512_set1_epi16(16))};
}

/// Elements k = i and i + 1 of `rows` rows which are neighbours in memory: `low` gets the pairs of the first
/// 16 rows, `high` (if wanted) those of the others. Zeros from k on.
template <bool with_high>
HOLDFAST_AVX512_INLINE void interleave(__m512i& low, __m512i& high, const Bf16* source, std::int64_t stride,
                                       std::int64_t i, std::int64_t k, __mmask32 rows,
                                       const PairOrder& order) {
  const __mmask32 even_rows = i < k ? rows : 0, odd_rows = i + 1 < k ? rows : 0;
  const Bf16* at = source + i * stride;
  if constexpr (with_high) {
    const __m512i even = _mm512_maskz_loadu_epi16(even_rows, at),
                  odd = _mm512_maskz_loadu_epi16(odd_rows, at + stride);
    low = _mm512_permutex2var_epi16(even, order.low, odd);
    high = _mm512_permutex2var_epi16(even, order.high, odd);
  } else {  // 32 bytes cross fewer cache lines
    const __m256i even = _mm256_maskz_loadu_epi16(static_cast<__mmask16>(even_rows), at),
                  odd = _mm256_maskz_loadu_epi16(static_cast<__mmask16>(odd_rows), at + stride);
    low = _mm512_permutex2var_epi16(_mm512_castsi256_si512(even), order.low, _mm512_castsi256_si512(odd));
  }
}

/// A part of a panel of `width` (at most 32) rows in pairs, word [pair][row]: its pairs from k = from (even)
/// to k = to. Of its rows `count` exist, of k `k`; the others become zeros. along_k: element i of row r is
/// source[r * stride + i] (`from` a multiple of 32), else source[i * stride + r].
template <int width>
HOLDFAST_AVX512_INLINE void pack_pairs(std::uint32_t* packed, const Bf16* source, std::int64_t stride,
                                       bool along_k, std::int64_t count, std::int64_t k, std::int64_t from,
                                       std::int64_t to) {
  if (along_k) {
    for (std::int64_t i = from; i < to; i += 32)
#pragma GCC unroll 2
      for (int first = 0; first < width; first += 16) {
        __m512i x[16];
        load_rows(x, source + first * stride + i, stride, count - first, k - i);
        transpose(x);
        const __mmask16 stored = first_lanes16(width - first);
        std::uint32_t* at = packed + i / 2 * width + first;
#pragma GCC unroll 16
        for (int pair = 0; pair < 16; ++pair) {
          if (width - first >= 16)
            _mm512_store_si512(at + pair * width, x[pair]);
          else
            _mm512_mask_storeu_epi32(at + pair * width, stored, x[pair]);
        }
      }
    return;
  }
  const PairOrder order = pair_order();
  const __mmask32 rows = first_lanes32(count);
  for (std::int64_t i = from; i < to; i += 2) {
    __m512i low, high;
    interleave<(width > 16)>(low, high, source, stride, i, k, rows, order);
    const auto* ahead = reinterpret_cast<const char*>(source + (i + rows_ahead) * stride);
    _mm_prefetch(ahead, _MM_HINT_T1);
    _mm_prefetch(ahead + stride * 2, _MM_HINT_T1);
    std::uint32_t* at = packed + i / 2 * width;
    if constexpr (width == 32) {
      _mm512_store_si512(at, low);
      _mm512_store_si512(at + 16, high);
    } else {
      _mm512_mask_storeu_epi32(at, first_lanes16(width), low);
    }
  }
}

/// tensor::to_bf16() of 16 numbers.
HOLDFAST_AVX512_INLINE __m256i rounded(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i nan = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(
      _mm512_mask_mov_epi32(_mm512_srli_epi32(sum, 16), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan));
}
HOLDFAST_AVX512_INLINE __m512 widened(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/// Bf16Blocks::finish().
HOLDFAST_AVX512 inline void finish(Bf16* y, std::int64_t y_stride, const float* sums, std::int64_t stride,
                                   const Bf16* bias, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r, y += y_stride, sums += stride)
    for (std::int64_t c = 0; c < cols; c += 16) {
      const __mmask16 lanes = first_lanes16(cols - c);
      __m512 x = _mm512_maskz_loadu_ps(lanes, sums + c);
      if (bias != nullptr) x = _mm512_add_ps(x, widened(_mm256_maskz_loadu_epi16(lanes, bias + c)));
      _mm256_mask_storeu_epi16(y + c, lanes, rounded(x));
    }
}
HOLDFAST_AVX512 inline void finish(float* y, std::int64_t y_stride, const float* sums, std::int64_t stride,
                                   const Bf16* bias, bool add, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r, y += y_stride, sums += stride)
    for (std::int64_t c = 0; c < cols; c += 16) {
      const __mmask16 lanes = first_lanes16(cols - c);
      __m512 x = _mm512_maskz_loadu_ps(lanes, sums + c);
      if (bias != nullptr) x = _mm512_add_ps(x, widened(_mm256_maskz_loadu_epi16(lanes, bias + c)));
      if (add) x = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y + c), x);
      _mm512_mask_storeu_ps(y + c, lanes, x);
    }
}

}  // namespace holdfast::kernels::avx512
#endif
