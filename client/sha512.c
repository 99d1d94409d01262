#include "sha512.h"

#include <string.h>

static const uint64_t round_constants[80] = {
    0x428a2f98d728ae22u, 0x7137449123ef65cdu, 0xb5c0fbcfec4d3b2fu, 0xe9b5dba58189dbbcu, 0x3956c25bf348b538u,
    0x59f111f1b605d019u, 0x923f82a4af194f9bu, 0xab1c5ed5da6d8118u, 0xd807aa98a3030242u, 0x12835b0145706fbeu,
    0x243185be4ee4b28cu, 0x550c7dc3d5ffb4e2u, 0x72be5d74f27b896fu, 0x80deb1fe3b1696b1u, 0x9bdc06a725c71235u,
    0xc19bf174cf692694u, 0xe49b69c19ef14ad2u, 0xefbe4786384f25e3u, 0x0fc19dc68b8cd5b5u, 0x240ca1cc77ac9c65u,
    0x2de92c6f592b0275u, 0x4a7484aa6ea6e483u, 0x5cb0a9dcbd41fbd4u, 0x76f988da831153b5u, 0x983e5152ee66dfabu,
    0xa831c66d2db43210u, 0xb00327c898fb213fu, 0xbf597fc7beef0ee4u, 0xc6e00bf33da88fc2u, 0xd5a79147930aa725u,
    0x06ca6351e003826fu, 0x142929670a0e6e70u, 0x27b70a8546d22ffcu, 0x2e1b21385c26c926u, 0x4d2c6dfc5ac42aedu,
    0x53380d139d95b3dfu, 0x650a73548baf63deu, 0x766a0abb3c77b2a8u, 0x81c2c92e47edaee6u, 0x92722c851482353bu,
    0xa2bfe8a14cf10364u, 0xa81a664bbc423001u, 0xc24b8b70d0f89791u, 0xc76c51a30654be30u, 0xd192e819d6ef5218u,
    0xd69906245565a910u, 0xf40e35855771202au, 0x106aa07032bbd1b8u, 0x19a4c116b8d2d0c8u, 0x1e376c085141ab53u,
    0x2748774cdf8eeb99u, 0x34b0bcb5e19b48a8u, 0x391c0cb3c5c95a63u, 0x4ed8aa4ae3418acbu, 0x5b9cca4f7763e373u,
    0x682e6ff3d6b2b8a3u, 0x748f82ee5defb2fcu, 0x78a5636f43172f60u, 0x84c87814a1f0ab72u, 0x8cc702081a6439ecu,
    0x90befffa23631e28u, 0xa4506cebde82bde9u, 0xbef9a3f7b2c67915u, 0xc67178f2e372532bu, 0xca273eceea26619cu,
    0xd186b8c721c0c207u, 0xeada7dd6cde0eb1eu, 0xf57d4f7fee6ed178u, 0x06f067aa72176fbau, 0x0a637dc5a2c898a6u,
    0x113f9804bef90daeu, 0x1b710b35131c471bu, 0x28db77f523047d84u, 0x32caab7b40c72493u, 0x3c9ebe0a15c9bebcu,
    0x431d67c49c100d4cu, 0x4cc5d4becb3e42b6u, 0x597f299cfc657e2au, 0x5fcb6fab3ad6faecu, 0x6c44198c4a475817u};

static uint64_t rotate(uint64_t x, int by) { return x >> by | x << (64 - by); }

static void take_block(uint64_t state[8], const unsigned char* block) {
  uint64_t w[80], s[8];
  for (int i = 0; i < 16; ++i) {
    w[i] = 0;
    for (int b = 0; b < 8; ++b) w[i] = w[i] << 8 | block[8 * i + b];
  }
  for (int i = 16; i < 80; ++i) {
    const uint64_t s0 = rotate(w[i - 15], 1) ^ rotate(w[i - 15], 8) ^ w[i - 15] >> 7;
    const uint64_t s1 = rotate(w[i - 2], 19) ^ rotate(w[i - 2], 61) ^ w[i - 2] >> 6;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  memcpy(s, state, sizeof s);
  /* The roles of the eight words go round in place of the words; unrolled, each is a register. */
  for (int i = 0; i < 80; i += 8) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      const uint64_t a = s[(0 - k) & 7], b = s[(1 - k) & 7], c = s[(2 - k) & 7];
      const uint64_t e = s[(4 - k) & 7], f = s[(5 - k) & 7], g = s[(6 - k) & 7], h = s[(7 - k) & 7];
      const uint64_t sum1 = rotate(e, 14) ^ rotate(e, 18) ^ rotate(e, 41);
      const uint64_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + round_constants[i + k] + w[i + k];
      const uint64_t sum0 = rotate(a, 28) ^ rotate(a, 34) ^ rotate(a, 39);
      s[(3 - k) & 7] += t1;
      s[(7 - k) & 7] = t1 + sum0 + ((a & b) ^ (a & c) ^ (b & c));
    }
  }
  for (int i = 0; i < 8; ++i) state[i] += s[i];
}

void hfc_sha512_begin(struct hfc_sha512* hash) {
  static const uint64_t first[8] = {0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu,
                                    0xa54ff53a5f1d36f1u, 0x510e527fade682d1u, 0x9b05688c2b3e6c1fu,
                                    0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u};
  memcpy(hash->state, first, sizeof first);
  hash->bytes = 0;
}

void hfc_sha512_add(struct hfc_sha512* hash, const void* data, size_t bytes) {
  const unsigned char* from = data;
  while (bytes > 0) {
    if (hash->bytes % sizeof hash->block == 0 && bytes >= sizeof hash->block) {
      take_block(hash->state, from);
      hash->bytes += sizeof hash->block;
      from += sizeof hash->block;
      bytes -= sizeof hash->block;
      continue;
    }
    const size_t filled = hash->bytes % sizeof hash->block;
    const size_t room = sizeof hash->block - filled, part = bytes < room ? bytes : room;
    memcpy(hash->block + filled, from, part);
    hash->bytes += part;
    from += part;
    bytes -= part;
    if (part == room) take_block(hash->state, hash->block);
  }
}

void hfc_sha512_end(struct hfc_sha512* hash, unsigned char out[64]) {
  const uint64_t bits = hash->bytes * 8;
  unsigned char tail[16] = {0};
  hfc_sha512_add(hash, "\x80", 1);
  while (hash->bytes % 128 != 112) hfc_sha512_add(hash, "", 1);
  for (int i = 0; i < 8; ++i) tail[15 - i] = (unsigned char)(bits >> (8 * i));
  hfc_sha512_add(hash, tail, sizeof tail);
  for (int i = 0; i < 64; ++i) out[i] = (unsigned char)(hash->state[i / 8] >> (56 - 8 * (i % 8)));
}

void hfc_mac_begin(struct hfc_mac* mac, const unsigned char key[32]) {
  unsigned char inner[128], outer[128];
  for (int i = 0; i < 128; ++i) {
    const unsigned char byte = i < 32 ? key[i] : 0;
    inner[i] = byte ^ 0x36;
    outer[i] = byte ^ 0x5c;
  }
  hfc_sha512_begin(&mac->inner);
  hfc_sha512_add(&mac->inner, inner, sizeof inner);
  hfc_sha512_begin(&mac->outer);
  hfc_sha512_add(&mac->outer, outer, sizeof outer);
}

void hfc_mac_add(struct hfc_mac* mac, const void* data, size_t bytes) {
  hfc_sha512_add(&mac->inner, data, bytes);
}

void hfc_mac_end(struct hfc_mac* mac, unsigned char out[32]) {
  unsigned char digest[64];
  hfc_sha512_end(&mac->inner, digest);
  hfc_sha512_add(&mac->outer, digest, sizeof digest);
  hfc_sha512_end(&mac->outer, digest);
  memcpy(out, digest, 32);
}

int hfc_same(const unsigned char a[32], const unsigned char b[32]) {
  volatile unsigned char differ = 0;
  for (int i = 0; i < 32; ++i) differ |= a[i] ^ b[i];
  return differ == 0;
}

void hfc_to_hex(const unsigned char bytes[32], char out[65]) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < 32; ++i) {
    out[2 * i] = digits[bytes[i] >> 4];
    out[2 * i + 1] = digits[bytes[i] & 15];
  }
  out[64] = '\0';
}

static int digit_of(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int hfc_from_hex(const char* text, size_t length, unsigned char out[32]) {
  if (length < 64) return 0;
  for (int i = 0; i < 32; ++i) {
    const int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0) return 0;
    out[i] = (unsigned char)(high << 4 | low);
  }
  return 1;
}
