/* What a rank says of the files that it has written: their names, sizes and digests, as a vote's payload. */
#ifndef HOLDFAST_CLIENT_FILES_H
#define HOLDFAST_CLIENT_FILES_H

#include <stddef.h>
#include <stdint.h>

struct hfc_name {
  struct hfc_name* next;
  int64_t step; /* of the checkpoint */
  char* name;
};

/* `path` without links; where it cannot be looked at, what it is below the working directory. NULL without
 * memory. To be freed. */
char* hfc_real_path(const char* path);

/* Reads the files `names` below `folder`, and counts bytes in `*read`. The payload of a vote, to be freed;
 * NULL: it is not possible, and `why`, of `size` bytes, says why not. A digest is SHA-512 cut to 256 bits.
 * Where a manifest can hold no name of one of them (below `folder`, plain UTF-8), or the list is longer than
 * a vote may be, the payload has only their number and size, and stderr says so. */
char* hfc_files_payload(const char* folder, const struct hfc_name* names, int64_t* read, char* why,
                        size_t size);

#endif
