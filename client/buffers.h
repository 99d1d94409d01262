/* The snapshot buffers of a rank: files in the memory of its node, in two generations, and their seals.
 * docs/protocol.md ("Snapshot buffers") is the contract. Nothing here speaks to the agent. Calls from several
 * threads wait for each other. */
#ifndef HOLDFAST_CLIENT_BUFFERS_H
#define HOLDFAST_CLIENT_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

struct hfc_place_of_buffers {
  const char* folder; /* of this rank; empty: there is none */
  int64_t limit;      /* bytes of a generation */
  int attempt, world;
  int64_t sealed_step; /* from which this attempt starts; -1: none */
  int sealed_attempt;
  /* Called with 1 about every 100 ms while a call waits for a copy, and with 0 when it is over. */
  void (*waits)(int on);
  int copied;      /* 1: seals are copied to another node */
  int patience_ms; /* the longest wait for a copy */
};
void hfc_buffers_open(const struct hfc_place_of_buffers* place);

/* Where it cannot be done, NULL or 0, and `why`, of `size` bytes, says why. */
void* hfc_buffer(const char* name, size_t bytes, char* why, size_t size);
int hfc_seal(int64_t step, char* why, size_t size);
/* Waits until the seal of `step` is copied, or cannot be, or for the whole patience; after that no call waits
 * until something has been copied. */
void hfc_wait_for_copy(int64_t step);
const void* hfc_load(const char* name, size_t* bytes, char* why, size_t size);

#endif
