/* The seal of a state in the memory of a node: a text that says what the buffers of a generation hold.
 * docs/protocol.md ("Snapshot buffers") is the contract. The client, the movers of agents and the trainer
 * read and write it here and nowhere else; the client in Python has its own. */
#ifndef HOLDFAST_CLIENT_SEAL_H
#define HOLDFAST_CLIENT_SEAL_H

#include <stddef.h>
#include <stdint.h>

enum {
  hfc_name_bytes = 64,       /* of a buffer, at most */
  hfc_most_buffers = 256,    /* of a generation */
  hfc_seal_bytes = 64 << 10, /* of a seal without a note, at most */
  hfc_most_ranks = 1 << 20
};
#define HFC_MOST_STEP ((int64_t)1 << 53) /* that JSON can say */

struct hfc_sealed_buffer {
  char name[hfc_name_bytes + 1];
  uint32_t crc; /* CRC-32 of zlib */
  int64_t bytes;
};
struct hfc_seal {
  int64_t step;
  int attempt, world;
  int count;
  struct hfc_sealed_buffer buffers[hfc_most_buffers]; /* names ascend */
  const char* note; /* a line for who wrote it, without its end; only the trainer has one. NULL: none */
  size_t note_bytes;
};

/* 1 to 64 letters, digits, '.', '_' and '-', not first a '.'. */
int hfc_is_buffer_name(const char* name);

/* 0: it is no seal, is damaged, or says what messages about it could not. `note` points into `text`. */
int hfc_seal_read(const char* text, struct hfc_seal* seal);

/* Bytes of the text in `out`; 0: it has more than `size`. */
size_t hfc_seal_write(const struct hfc_seal* seal, char* out, size_t size);

#endif
