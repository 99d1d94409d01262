/* At every moment one generation is the newest, and a program writes into the other one. A cycle begins with
 * the first hf_buffer() after a seal: begin_to_write() locks that generation against the agent's mover (and
 * goes on without the lock after `patience_ms`), and removes its seal. Each call then maps the file of one
 * buffer. hfc_seal() requires that each known buffer was asked for in this cycle; it writes their checksums
 * into a new file, renames that to "seal", and unlocks. A process that dies before that rename leaves the
 * other generation sealed, as it was.
 *
 * hfc_load() maps a buffer of the state from which the attempt starts, for reading only. If its checksum is
 * wrong, the seal is renamed to "damaged", and no later attempt starts from this generation as it is.
 *
 * hfc_buffer(), hfc_seal() and hfc_load() hold the lock. hfc_wait_for_copy(), which may wait for
 * `patience_ms`, holds it only while it looks at what it remembers. */
#include "buffers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "crc32.h"
#include "seal.h"

struct buffer {
  char name[hfc_name_bytes + 1];
  size_t bytes; /* as it was asked for last */
  int asked;    /* since the last seal */
  void* at[2];  /* of each generation; NULL: not mapped */
  size_t mapped[2];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char folder[PATH_MAX - 128];
  struct hfc_place_of_buffers place;
  struct buffer buffers[hfc_most_buffers];
  int count;
  int newest;        /* the generation that is not written next */
  int writing;       /* the seal of the other one is gone, and its folder is locked by ... */
  int held;          /* ... this descriptor */
  int64_t silent_at; /* copied_step() said this when a wait for more was in vain */
  /* The seal that was read or written last, and its text: too large for the stacks of some threads. */
  struct hfc_seal seal;
  char text[hfc_seal_bytes];
} own = {.held = -1, .silent_at = INT64_MIN};

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void path_of(int generation, const char* file, const char* suffix, char out[PATH_MAX]) {
  snprintf(out, PATH_MAX, "%s/%d/%s%s", own.folder, generation, file, suffix);
}

static int refuse(char* why, size_t size, const char* what, int error) {
  if (error)
    snprintf(why, size, "%s (%s)", what, strerror(error));
  else
    snprintf(why, size, "%s", what);
  return 0;
}

/* 0: there is none, or it is damaged. */
static int read_seal(int generation) {
  char path[PATH_MAX];
  path_of(generation, "seal", "", path);
  FILE* file = fopen(path, "re");
  const size_t length = file ? fread(own.text, 1, sizeof own.text - 1, file) : 0;
  if (file) fclose(file);
  own.text[length] = '\0';
  return hfc_seal_read(own.text, &own.seal);
}

static int is_sealed_as(int generation, int64_t step, int attempt) {
  return read_seal(generation) && own.seal.step == step && own.seal.attempt == attempt;
}

/* Greater is newer; -1: nothing. */
static int64_t age_of(int generation) {
  return read_seal(generation) ? (int64_t)own.seal.attempt << 40 | own.seal.step : -1;
}

void hfc_buffers_open(const struct hfc_place_of_buffers* place) {
  own.place = *place;
  if (strlen(place->folder) < sizeof own.folder) strcpy(own.folder, place->folder);
  own.newest = age_of(1) > age_of(0);
  for (int g = 0; g < 2; ++g)
    if (place->sealed_step >= 0 && is_sealed_as(g, place->sealed_step, place->sealed_attempt)) own.newest = g;
}

/* A child of fork() may have the descriptor, too. */
static void unlock_generation(void) {
  flock(own.held, LOCK_UN);
  close(own.held);
  own.held = -1;
}

/* Begins to write the other generation. Who copies it gets some time to come to its end. */
static int begin_to_write(char* why, size_t size) {
  const int generation = !own.newest;
  const struct timespec pause = {0, 1000000};
  char path[PATH_MAX];
  if (own.writing) return 1;
  path_of(generation, "", "", path);
  if ((mkdir(own.folder, 0700) != 0 && errno != EEXIST) || (mkdir(path, 0700) != 0 && errno != EEXIST))
    return refuse(why, size, "its folder cannot be made", errno);
  own.held = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (own.held < 0) return refuse(why, size, "its folder cannot be opened", errno);
  const int64_t limit = now_ms() + own.place.patience_ms;
  int polls = 0;
  for (; flock(own.held, LOCK_EX | LOCK_NB) != 0 && now_ms() < limit; ++polls) {
    if (polls % 100 == 0) own.place.waits(1);
    nanosleep(&pause, NULL);
  }
  if (polls > 0) own.place.waits(0);
  path_of(generation, "seal", "", path);
  if (unlink(path) != 0 && errno != ENOENT) {
    refuse(why, size, "its old seal cannot be removed", errno);
    unlock_generation();
    return 0;
  }
  for (int i = 0; i < own.count; ++i) own.buffers[i].asked = 0;
  return own.writing = 1;
}

static struct buffer* find(const char* name) {
  for (int i = 0; i < own.count; ++i)
    if (strcmp(own.buffers[i].name, name) == 0) return &own.buffers[i];
  return NULL;
}

static int fits(const char* name, size_t bytes, char* why, size_t size) {
  double all = (double)bytes;
  for (int i = 0; i < own.count; ++i)
    if (strcmp(own.buffers[i].name, name) != 0) all += (double)own.buffers[i].bytes;
  if (all <= (double)own.place.limit) return 1;
  snprintf(
      why, size,
      "this rank's buffers would have %.0f bytes and may have %lld (seven eighths of the node's memory for "
      "them are shared by its ranks, for two generations and their copies). Keep less in them, set "
      "checkpoint.partner = \"none\", or a larger checkpoint.local?",
      all, (long long)own.place.limit);
  return 0;
}

static void* map_file(const char* path, size_t bytes, char* why, size_t size) {
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return refuse(why, size, "its file cannot be opened", errno), NULL;
  void* at = MAP_FAILED;
  sigset_t all, before;
  /* What has no room is to be an error here, and not a signal later. Signals would interrupt it. */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = ftruncate(fd, (off_t)bytes) != 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!error && (at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
    error = errno;
  close(fd);
  if (!error) return at;
  unlink(path);
  refuse(why, size, "the node has no memory for it any more", error);
  return NULL;
}

static void* buffer_of(const char* name, size_t bytes, char* why, size_t size) {
  char path[PATH_MAX];
  if (!*own.folder)
    return refuse(why, size, "the agent gives this rank no memory of its node. Is checkpoint.local \"none\"?",
                  0),
           NULL;
  if (!hfc_is_buffer_name(name))
    return refuse(why, size, "a name has 1 to 64 letters, digits, '.', '_' and '-', and begins with no '.'",
                  0),
           NULL;
  if (bytes == 0) return refuse(why, size, "it has no bytes", 0), NULL;
  if (!fits(name, bytes, why, size)) return NULL;
  struct buffer* buffer = find(name);
  if (!buffer && own.count == hfc_most_buffers) return refuse(why, size, "there are 256 already", 0), NULL;
  if (!begin_to_write(why, size)) return NULL;
  const int generation = !own.newest;
  if (buffer && buffer->at[generation] && buffer->mapped[generation] != bytes) {
    munmap(buffer->at[generation], buffer->mapped[generation]);
    buffer->at[generation] = NULL;
    buffer->asked = 0; /* without room it stays so, and nothing is sealed */
  }
  void* at = buffer ? buffer->at[generation] : NULL;
  path_of(generation, name, ".buffer", path);
  if (!at && !(at = map_file(path, bytes, why, size))) return NULL;
  if (!buffer) {
    buffer = &own.buffers[own.count++];
    memset(buffer, 0, sizeof *buffer);
    strcpy(buffer->name, name);
  }
  buffer->bytes = buffer->mapped[generation] = bytes;
  buffer->at[generation] = at;
  buffer->asked = 1;
  return at;
}

static int by_name(const void* a, const void* b) {
  return strcmp((*(struct buffer* const*)a)->name, (*(struct buffer* const*)b)->name);
}

static int seal_at(int64_t step, char* why, size_t size) {
  const int generation = !own.newest;
  struct buffer* sorted[hfc_most_buffers];
  char path[PATH_MAX], aside[PATH_MAX];
  if (!own.writing) return refuse(why, size, "no buffer has been written since the last seal", 0);
  if (step < 0) return refuse(why, size, "a step is not negative", 0);
  for (int i = 0; i < own.count; ++i) {
    sorted[i] = &own.buffers[i];
    if (!own.buffers[i].asked) {
      snprintf(why, size, "hf_buffer() has not been called for %s since the last seal", own.buffers[i].name);
      return 0;
    }
  }
  own.seal.step = step;
  own.seal.attempt = own.place.attempt;
  own.seal.world = own.place.world;
  own.seal.count = own.count;
  own.seal.note = NULL;
  qsort(sorted, (size_t)own.count, sizeof *sorted, by_name);
  for (int i = 0; i < own.count; ++i) {
    struct hfc_sealed_buffer* const line = &own.seal.buffers[i];
    strcpy(line->name, sorted[i]->name);
    line->bytes = (int64_t)sorted[i]->bytes;
    line->crc = hfc_crc32(0, sorted[i]->at[generation], sorted[i]->bytes);
  }
  const size_t length = hfc_seal_write(&own.seal, own.text, sizeof own.text);
  path_of(generation, "seal", ".new", aside);
  path_of(generation, "seal", "", path);
  const int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  const int whole = fd >= 0 && write(fd, own.text, length) == (ssize_t)length;
  int error = whole ? 0 : errno ? errno : ENOSPC;
  if (fd >= 0) close(fd);
  if (!error && rename(aside, path) != 0) error = errno;
  if (error) return refuse(why, size, "its seal cannot be written", error);
  unlock_generation();
  own.writing = 0;
  own.newest = generation;
  return 1;
}

/* The step of the seal with which the mover has dealt last; -1: with none of this attempt. */
static int64_t copied_step(void) {
  char path[PATH_MAX];
  long long copied = -1;
  int attempt = 0;
  snprintf(path, sizeof path, "%s/copied", own.folder);
  FILE* file = fopen(path, "re");
  const int read = file ? fscanf(file, "%d %lld", &attempt, &copied) : 0;
  if (file) fclose(file);
  return read == 2 && attempt == own.place.attempt ? copied : -1;
}

void hfc_wait_for_copy(int64_t step) {
  static int said;
  const struct timespec pause = {0, 1000000};
  if (!own.place.copied) return;
  int64_t copied = copied_step();
  pthread_mutex_lock(&lock);
  const int silent = copied == own.silent_at;
  pthread_mutex_unlock(&lock);
  if (silent) return;
  const int64_t limit = now_ms() + own.place.patience_ms;
  int polls = 0;
  for (; copied < step && now_ms() < limit; ++polls) {
    if (polls % 100 == 0) own.place.waits(1);
    nanosleep(&pause, NULL);
    copied = copied_step();
  }
  if (polls > 0) own.place.waits(0);
  pthread_mutex_lock(&lock);
  own.silent_at = copied < step ? copied : INT64_MIN;
  const int says = copied < step && !said;
  said |= says;
  pthread_mutex_unlock(&lock);
  if (!says) return;
  fprintf(stderr,
          "holdfast: the agent has not copied the buffers of step %lld to another node for %d s (its log may "
          "say why). This rank goes on, and waits no more until it copies again.\n",
          (long long)step, own.place.patience_ms / 1000);
}

static const void* map_sealed(int generation, const struct hfc_sealed_buffer* what) {
  char path[PATH_MAX];
  struct stat facts;
  const size_t bytes = (size_t)what->bytes;
  path_of(generation, what->name, ".buffer", path);
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  void* at = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &facts) == 0 && (uint64_t)facts.st_size == bytes)
    at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (at == MAP_FAILED) return NULL;
  if (hfc_crc32(0, at, bytes) == what->crc) return at;
  munmap(at, bytes);
  return NULL;
}

static const void* load(const char* name, size_t* bytes, char* why, size_t size) {
  const struct hfc_sealed_buffer* what = NULL;
  if (own.place.sealed_step < 0)
    return refuse(why, size, "this attempt does not start from buffers", 0), NULL;
  if (!hfc_is_buffer_name(name)) return refuse(why, size, "no buffer has such a name", 0), NULL;
  if (!is_sealed_as(own.newest, own.place.sealed_step, own.place.sealed_attempt))
    return refuse(why, size, "the state from which this attempt starts is not here any more", 0), NULL;
  for (int i = 0; i < own.seal.count; ++i)
    if (strcmp(own.seal.buffers[i].name, name) == 0) what = &own.seal.buffers[i];
  if (!what) return refuse(why, size, "it is not among the sealed ones", 0), NULL;
  *bytes = (size_t)what->bytes;
  const void* at = map_sealed(own.newest, what);
  if (at) return at;
  char path[PATH_MAX], aside[PATH_MAX];
  path_of(own.newest, "seal", "", path);
  path_of(own.newest, "damaged", "", aside);
  rename(path, aside); /* the next attempt starts from another state, or the mover repairs this one */
  refuse(why, size, "it is damaged, and is not sealed any more", 0);
  return NULL;
}

void* hfc_buffer(const char* name, size_t bytes, char* why, size_t size) {
  pthread_mutex_lock(&lock);
  void* out = buffer_of(name, bytes, why, size);
  pthread_mutex_unlock(&lock);
  return out;
}

int hfc_seal(int64_t step, char* why, size_t size) {
  pthread_mutex_lock(&lock);
  const int out = seal_at(step, why, size);
  pthread_mutex_unlock(&lock);
  return out;
}

const void* hfc_load(const char* name, size_t* bytes, char* why, size_t size) {
  pthread_mutex_lock(&lock);
  const void* out = load(name, bytes, why, size);
  pthread_mutex_unlock(&lock);
  return out;
}
