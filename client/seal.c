#include "seal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crc32.h"

int hfc_is_buffer_name(const char* name) {
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const size_t length = name ? strlen(name) : 0;
  return length > 0 && length <= hfc_name_bytes && *name != '.' && strspn(name, allowed) == length;
}

static void add(char* out, size_t size, size_t* used, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (*used < size) *used += (size_t)vsnprintf(out + *used, size - *used, format, arguments);
  va_end(arguments);
}

size_t hfc_seal_write(const struct hfc_seal* seal, char* out, size_t size) {
  size_t used = 0;
  add(out, size, &used, "holdfast seal 1\nstep %lld\nattempt %d\nworld %d\n", (long long)seal->step,
      seal->attempt, seal->world);
  for (const struct hfc_sealed_buffer* b = seal->buffers; b < seal->buffers + seal->count; ++b)
    add(out, size, &used, "buffer %s %lld %08x\n", b->name, (long long)b->bytes, (unsigned)b->crc);
  if (seal->note) add(out, size, &used, "note %.*s\n", (int)seal->note_bytes, seal->note);
  if (used < size) add(out, size, &used, "end %08x\n", (unsigned)hfc_crc32(0, out, used));
  return used < size ? used : 0;
}

/* A line of a buffer; bytes of the text, 0: it is none, or not behind the one before it. */
static int take_buffer(const char* text, struct hfc_seal* seal) {
  struct hfc_sealed_buffer* const next = &seal->buffers[seal->count];
  long long bytes = 0;
  unsigned crc = 0;
  int used = 0;
  if (seal->count == hfc_most_buffers ||
      sscanf(text, "buffer %64s %lld %8x\n%n", next->name, &bytes, &crc, &used) != 3 || bytes <= 0 ||
      !hfc_is_buffer_name(next->name) || (seal->count > 0 && strcmp(next[-1].name, next->name) >= 0))
    return 0;
  next->bytes = bytes;
  next->crc = crc;
  ++seal->count;
  return used;
}

int hfc_seal_read(const char* text, struct hfc_seal* seal) {
  const size_t length = strlen(text);
  long long step = 0;
  int used = 0, more;
  seal->count = 0;
  if (sscanf(text, "holdfast seal 1\nstep %lld\nattempt %d\nworld %d\n%n", &step, &seal->attempt,
             &seal->world, &used) != 3 ||
      step < 0 || step > HFC_MOST_STEP || seal->attempt < 0 || seal->world < 1 ||
      seal->world > hfc_most_ranks)
    return 0;
  seal->step = step;
  while ((more = take_buffer(text + used, seal)) > 0) used += more;
  seal->note = strncmp(text + used, "note ", 5) == 0 ? text + used + 5 : NULL;
  seal->note_bytes = seal->note ? strcspn(seal->note, "\n") : 0;
  /* What is not written in the same way is none: so its checksum and every space are right. */
  char* const again = malloc(length + 1);
  const int sound =
      again && hfc_seal_write(seal, again, length + 1) == length && memcmp(again, text, length) == 0;
  free(again);
  return sound;
}
