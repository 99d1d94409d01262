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

enum { path_bytes = 4096, path_room = 2 * path_bytes, read_at_once = 1 << 20, list_limit = 4 << 20 };

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

static int is_held(const char* name) { return strlen(name) <= path_bytes && hfc_json_is_plain(name); }

/* The file's path without links, and its name below `folder`, which has none: "", where no manifest can hold
 * one. Both have `path_room` bytes. errno otherwise. */
static int find(const char* folder, const char* given, char* path, char* name) {
  char whole[path_room], real[path_bytes];
  const size_t root = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
  const char* below = real;
  if ((size_t)snprintf(whole, sizeof whole, "%s/%s", given[0] == '/' ? "" : folder, given) >= sizeof whole)
    return ENAMETOOLONG;
  char* const slash = strrchr(whole, '/');
  const char* const base = slash + 1;
  *slash = '\0';
  if (!realpath(whole[0] ? whole : "/", real)) return errno;
  if ((size_t)snprintf(path, path_room, "%s/%s", real, base) >= path_room) return ENAMETOOLONG;
  name[0] = '\0';
  if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0 || strncmp(real, folder, root) != 0 ||
      (real[root] && real[root] != '/'))
    return 0;
  for (below += root; *below == '/';) ++below;
  const int length = snprintf(name, path_room, "%s%s%s", below, *below ? "/" : "", base);
  if ((size_t)length >= path_room || !is_held(name)) name[0] = '\0';
  return 0;
}

/* errno otherwise. */
static int look_at_size(const char* path, int64_t* bytes) {
  struct stat info;
  if (stat(path, &info) != 0) return errno;
  *bytes = info.st_size;
  return S_ISREG(info.st_mode) ? 0 : EINVAL;
}

static void complain_once(const char* path) {
  static int done;
  char quoted[6 * path_bytes + 3];
  if (done) return;
  done = 1;
  hfc_json_quote(path, path_bytes, quoted);
  fprintf(stderr,
          "holdfast: no manifest can hold the name of %s, which is not below the path of the vote, or is not "
          "plain UTF-8; the files of such checkpoints are only counted\n",
          quoted);
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
  char quoted[6 * path_bytes + 3], numbers[128], path[path_room], name[path_room], digest[65];
  int64_t files = 0, total = 0, bytes = 0;
  int held = is_held(folder);
  struct text list = {calloc(1, 1), 0, 1};
  if (!held) complain_once(folder);
  for (const struct hfc_name* at = names; at; at = at->next, ++files) {
    int failed = find(folder, at->name, path, name);
    if (!failed && held && !name[0]) {
      complain_once(path);
      held = 0;
    }
    if (!failed) failed = held ? read_digest(path, digest, &bytes, read) : look_at_size(path, &bytes);
    if (failed) {
      const int absolute = at->name[0] == '/';
      snprintf(why, size, "%s%s%s cannot be read: %s", absolute ? "" : folder, absolute ? "" : "/", at->name,
               strerror(failed));
      free(list.at);
      return NULL;
    }
    total += bytes;
    if (!held) continue;
    hfc_json_quote(name, path_bytes, quoted);
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
  if (list.at && held && list.length <= list_limit) {
    append(&out, ",\"list\":[");
    append(&out, list.at);
    append(&out, "]");
  } else if (list.at && held) {
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
