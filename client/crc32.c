#include "crc32.h"

#include <pthread.h>

static uint32_t table[8][256];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_table(void) {
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    table[0][i] = crc;
  }
  for (int t = 1; t < 8; ++t)
    for (int i = 0; i < 256; ++i) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
}

/* Eight bytes at a time; `crc` is inverted. */
static uint32_t by_table(uint32_t crc, const unsigned char* at, size_t bytes) {
  pthread_once(&made, make_table);
  for (; bytes >= 8; at += 8, bytes -= 8) {
    crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    crc = table[7][crc & 255] ^ table[6][crc >> 8 & 255] ^ table[5][crc >> 16 & 255] ^ table[4][crc >> 24] ^
          table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
  }
  for (; bytes > 0; ++at, --bytes) crc = crc >> 8 ^ table[0][(crc ^ *at) & 255];
  return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

/* Folding by carry-less products: Gopal and others, "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction", Intel, 2009; the constants are those of its reflected CRC-32. `bytes`: a multiple
 * of 16, at least 64. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t by_products(uint32_t crc, const unsigned char* at,
                                                                     size_t bytes) {
  const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
  __m128i x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm_loadu_si128((const __m128i*)at + i);
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
  for (at += 64, bytes -= 64; bytes >= 64; at += 64, bytes -= 64)
    for (int i = 0; i < 4; ++i)
      x[i] = _mm_xor_si128(
          _mm_xor_si128(_mm_clmulepi64_si128(x[i], by_512, 0x00), _mm_clmulepi64_si128(x[i], by_512, 0x11)),
          _mm_loadu_si128((const __m128i*)at + i));
  __m128i all = x[0];
  for (int i = 1; i < 4; ++i)
    all = _mm_xor_si128(
        _mm_xor_si128(_mm_clmulepi64_si128(all, by_128, 0x00), _mm_clmulepi64_si128(all, by_128, 0x11)),
        x[i]);
  for (; bytes >= 16; at += 16, bytes -= 16)
    all = _mm_xor_si128(
        _mm_xor_si128(_mm_clmulepi64_si128(all, by_128, 0x00), _mm_clmulepi64_si128(all, by_128, 0x11)),
        _mm_loadu_si128((const __m128i*)at));
  /* 128 bits to 64, and those to 32 (Barrett). */
  all = _mm_xor_si128(_mm_srli_si128(all, 8), _mm_clmulepi64_si128(all, by_128, 0x10));
  const __m128i by_64 = _mm_set_epi64x(0, 0x163cd6124), barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
  all = _mm_xor_si128(_mm_srli_si128(all, 4), _mm_clmulepi64_si128(_mm_and_si128(all, low), by_64, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(all, low), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low), barrett, 0x00);
  return (uint32_t)_mm_extract_epi32(_mm_xor_si128(all, quotient), 1);
}

static int has_products(void) { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }
#else
static uint32_t by_products(uint32_t crc, const unsigned char* at, size_t bytes) {
  return by_table(crc, at, bytes);
}
static int has_products(void) { return 0; }
#endif

uint32_t hfc_crc32(uint32_t crc, const void* data, size_t bytes) {
  const unsigned char* at = data;
  crc = ~crc;
  if (bytes >= 64 && has_products()) {
    const size_t folded = bytes & ~(size_t)15;
    crc = by_products(crc, at, folded);
    at += folded;
    bytes -= folded;
  }
  return ~by_table(crc, at, bytes);
}
