#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "sha512.h"

enum { path_bytes = 4096, read_at_once = 1 << 20, list_limit = 4 << 20 };

char* hfc_real_path(const char* path) {
  char folder[path_bytes];
  char* real = realpath(path[0] ? path : ".", NULL);
  if (real) return real;
  if (path[0] == '/') return strdup(path);
  if (!getcwd(folder, sizeof folder)) return NULL;
  char* out = malloc(strlen(folder) + strlen(path) + 2);
  if (out) sprintf(out, path[0] ? "%s/%s" : "%s", folder, path);
  return out;
}

struct text {
  char* at; /* NULL: there was no memory */
  size_t length, room;
};

static void append(struct text* to, const char* more) {
  const size_t length = strlen(more);
  if (!to->at) return;
  if (to->length + length >= to->room) {
    const size_t room = 2 * (to->length + length) + 256;
    char* grown = realloc(to->at, room);
    if (!grown) free(to->at);
    to->at = grown;
    to->room = room;
    if (!grown) return;
  }
  memcpy(to->at + to->length, more, length + 1);
  to->length += length;
}

/* 64 hex digits in `digest`; errno otherwise. */
static int read_digest(const char* path, char digest[65], int64_t* bytes, int64_t* read_so_far) {
  struct hfc_sha512 hash;
  unsigned char sum[64];
  struct stat info;
  int failed = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  char* part = malloc(read_at_once);
  if (!part) failed = ENOMEM;
  if (!failed && fstat(fd, &info) != 0) failed = errno;
  if (!failed && !S_ISREG(info.st_mode)) failed = EINVAL;
  *bytes = 0;
  hfc_sha512_begin(&hash);
  while (!failed) {
    const ssize_t count = read(fd, part, read_at_once);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) failed = errno;
    if (count <= 0) break;
    hfc_sha512_add(&hash, part, (size_t)count);
    *bytes += count;
    __atomic_add_fetch(read_so_far, count, __ATOMIC_RELAXED);
  }
  close(fd);
  free(part);
  hfc_sha512_end(&hash, sum);
  hfc_to_hex(sum, digest);
  return failed;
}

char* hfc_files_payload(const char* folder, const struct hfc_name* names, int64_t* read, char* why,
                        size_t size) {
  char quoted[6 * path_bytes + 3], numbers[128], path[2 * path_bytes], digest[65];
  int64_t files = 0, total = 0, bytes = 0;
  struct text list = {calloc(1, 1), 0, 1};
  for (const struct hfc_name* at = names; at; at = at->next, ++files) {
    const int length = snprintf(path, sizeof path, "%s/%s", folder, at->name);
    const int failed = (size_t)length < sizeof path ? read_digest(path, digest, &bytes, read) : ENAMETOOLONG;
    if (failed) {
      snprintf(why, size, "%s cannot be read: %s", path, strerror(failed));
      free(list.at);
      return NULL;
    }
    total += bytes;
    hfc_json_quote(at->name, path_bytes, quoted);
    append(&list, files == 0 ? "[" : ",[");
    append(&list, quoted);
    snprintf(numbers, sizeof numbers, ",%" PRId64 ",\"", bytes);
    append(&list, numbers);
    append(&list, digest);
    append(&list, "\"]");
  }
  struct text out = {calloc(1, 1), 0, 1};
  hfc_json_quote(folder, path_bytes, quoted);
  append(&out, "{\"kind\":\"files\",\"path\":");
  append(&out, quoted);
  snprintf(numbers, sizeof numbers, ",\"files\":%" PRId64 ",\"bytes\":%" PRId64, files, total);
  append(&out, numbers);
  if (list.at && list.length <= list_limit) {
    append(&out, ",\"list\":[");
    append(&out, list.at);
    append(&out, "]");
  } else if (list.at) {
    fprintf(stderr,
            "holdfast: the names of %" PRId64 " files are too long for a vote; they are only counted\n",
            files);
  }
  append(&out, "}");
  if (!list.at || !out.at) snprintf(why, size, "there is no memory");
  if (!list.at) {
    free(out.at);
    out.at = NULL;
  }
  free(list.at);
  return out.at;
}
