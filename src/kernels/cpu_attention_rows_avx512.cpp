// Rows of attention with AVX-512: the arithmetic of cpu_attention_rows.cpp, and the processor's own maximum
// and rounding to bf16.
#include "src/kernels/bf16_avx512.hpp"
#include "src/kernels/bf16_block.hpp"
#include "src/kernels/cpu_attention_power.hpp"
#include "src/kernels/cpu_attention_rows.hpp"

namespace holdfast::kernels {

#if defined(__x86_64__)
namespace {

HOLDFAST_AVX512_INLINE __m512 power_of_two(__m512 x) {
  const __m512 shift = _mm512_set1_ps(power::shift), shifted = _mm512_add_ps(x, shift);
  const __m512 r = _mm512_sub_ps(x, _mm512_sub_ps(shifted, shift));
  __m512 p = _mm512_set1_ps(power::c4);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(power::c3));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(power::c2));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(power::c1));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  const __mmask16 kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(power::least), _CMP_NLT_UQ);  // or NaN
  return _mm512_maskz_mul_ps(kept, p,
                             _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}

HOLDFAST_AVX512_INLINE void store_operands(Bf16* to, __m512 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}

HOLDFAST_AVX512 void avx512_largest(RowLanes& lanes, const float* scores, std::int64_t count) {
  __m512 lane = _mm512_loadu_ps(lanes.lane);
  for (std::int64_t j = 0; j < count; j += row_group)
    lane = _mm512_max_ps(_mm512_loadu_ps(scores + j), lane);  // the second when the first is NaN
  _mm512_storeu_ps(lanes.lane, lane);
}

HOLDFAST_AVX512 void avx512_powers(Bf16* p, RowLanes& sums, const float* scores, std::int64_t count,
                                   float scale, float top) {
  const __m512 scales = _mm512_set1_ps(scale), tops = _mm512_set1_ps(top);
  __m512 lane = _mm512_loadu_ps(sums.lane);
  for (std::int64_t j = 0; j < count; j += row_group) {
    const __m512 e = power_of_two(_mm512_fmsub_ps(_mm512_loadu_ps(scores + j), scales, tops));
    lane = _mm512_add_ps(lane, e);
    store_operands(p + j, e);
  }
  _mm512_storeu_ps(sums.lane, lane);
}

HOLDFAST_AVX512 void avx512_power_gradients(Bf16* p, Bf16* ds, const float* scores, const float* dp,
                                            std::int64_t count, float scale, float top, float mean) {
  const __m512 scales = _mm512_set1_ps(scale), tops = _mm512_set1_ps(top), means = _mm512_set1_ps(mean);
  for (std::int64_t j = 0; j < count; j += row_group) {
    const __m512 e = power_of_two(_mm512_fmsub_ps(_mm512_loadu_ps(scores + j), scales, tops));
    store_operands(p + j, e);
    store_operands(ds + j, _mm512_mul_ps(e, _mm512_sub_ps(_mm512_loadu_ps(dp + j), means)));
  }
}

}  // namespace

const RowMath* avx512_row_math() {
  static constexpr RowMath math{avx512_largest, avx512_powers, avx512_power_gradients};
  return bf16_blocks(Bf16Path::avx512) != nullptr ? &math : nullptr;
}

#else

const RowMath* avx512_row_math() { return nullptr; }

#endif

}  // namespace holdfast::kernels
