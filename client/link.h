/* One connection to the agent, seen by the thread that has it: the handshake, sealed lines out and in.
 * Whoever calls has a deadline for everything: nothing here waits longer than it says. docs/protocol.md is
 * the contract. */
#ifndef HOLDFAST_CLIENT_LINK_H
#define HOLDFAST_CLIENT_LINK_H

#include <stddef.h>
#include <stdint.h>

enum { hfc_version = 2, hfc_oldest_version = 2, hfc_line_limit = 1 << 20 };

struct hfc_link {
  int fd; /* -1: closed */
  unsigned char session[32];
  uint64_t sent, received;
  char* input;
  size_t filled, room;
  size_t given; /* bytes at its beginning that hfc_next() has given out */
};

struct hfc_identity {
  char socket[108]; /* as long as a path of a Unix socket may be */
  unsigned char key[32];
  int rank, attempt;
};

/* Waits at most 5 s for the agent. 0: not connected, and `why`, of `size` bytes, says why not. The descriptor
 * is in `*shown` as soon as there is one. */
int hfc_connect(struct hfc_link* link, const struct hfc_identity* who, volatile int* shown, char* why,
                size_t size);
void hfc_disconnect(struct hfc_link* link);

/* A message, without its newline. Waits at most 5 s. 0: the connection is of no use any more. */
int hfc_send(struct hfc_link* link, const char* message);
/* Reads what there is. 0: the connection is of no use any more. */
int hfc_read(struct hfc_link* link);
/* The next line whose seal is valid, without it; it lies in the link until the next call. 1: there is one, 0:
 * not yet, -1: the connection is of no use any more. */
int hfc_next(struct hfc_link* link, const char** line, size_t* length);

#endif
