/* SHA-512 (FIPS 180-4), and HMAC-SHA-512 cut to 256 bits: what libsodium calls crypto_auth. */
#ifndef HOLDFAST_CLIENT_SHA512_H
#define HOLDFAST_CLIENT_SHA512_H

#include <stddef.h>
#include <stdint.h>

struct hfc_sha512 {
  uint64_t state[8];
  uint64_t bytes; /* taken so far: a message has at most 2^61 */
  unsigned char block[128];
};
void hfc_sha512_begin(struct hfc_sha512* hash);
void hfc_sha512_add(struct hfc_sha512* hash, const void* data, size_t bytes);
void hfc_sha512_end(struct hfc_sha512* hash, unsigned char out[64]);

struct hfc_mac {
  struct hfc_sha512 inner, outer;
};
void hfc_mac_begin(struct hfc_mac* mac, const unsigned char key[32]);
void hfc_mac_add(struct hfc_mac* mac, const void* data, size_t bytes);
void hfc_mac_end(struct hfc_mac* mac, unsigned char out[32]);

/* In constant time. */
int hfc_same(const unsigned char a[32], const unsigned char b[32]);
void hfc_to_hex(const unsigned char bytes[32], char out[65]);
/* 0 when `text` does not begin with 64 lower-case hex digits. */
int hfc_from_hex(const char* text, size_t length, unsigned char out[32]);

#endif
