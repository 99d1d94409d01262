/* A program with the client of Holdfast: ranks that step, save, and go on from what they saved. In place of
 * training each step turns a number into the next. docs/manual/any-program.md says what the calls are for.
 *
 *   ranks FOLDER STEPS SAVE_EVERY STEP_MS     ends sooner when FOLDER/enough is there
 *
 * Ranks do not talk to each other here, so each asks for orders and saves at the next step that all save at.
 * Ranks that exchange data ask on rank 0 and broadcast the answer, and save at once. */
#include <errno.h>
#include <fcntl.h>
#include <holdfast.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct model {
  int64_t step;
  uint64_t value;
};

static void name_of(char out[64], int64_t step, int rank) {
  snprintf(out, 64, "step-%08" PRId64 "/rank-%05d", step, rank);
}

static void file_of(char out[4096], const char* folder, int64_t step, int rank) {
  char name[64];
  name_of(name, step, rank);
  snprintf(out, 4096, "%s/%s", folder, name);
}

/* Complete and on disk, or not there. 0: it failed, and errno says why. */
static int save(const struct model* m, const char* folder, int rank) {
  char path[4096], aside[4104], text[64];
  file_of(path, folder, m->step, rank);
  char* slash = strrchr(path, '/');
  *slash = '\0';
  if (mkdir(path, 0700) != 0 && errno != EEXIST) return 0;
  *slash = '/';
  snprintf(aside, sizeof aside, "%s.new", path);
  const int size = snprintf(text, sizeof text, "%" PRIu64 "\n", m->value);
  const int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0) return 0;
  const int written = write(fd, text, (size_t)size) == size && fsync(fd) == 0;
  return close(fd) == 0 && written && rename(aside, path) == 0;
}

static int load(struct model* m, const char* folder, int rank, int64_t step) {
  char path[4096];
  file_of(path, folder, step, rank);
  FILE* file = fopen(path, "r");
  if (!file) return 0;
  const int read = fscanf(file, "%" SCNu64, &m->value) == 1;
  fclose(file);
  m->step = step;
  return read;
}

static void save_and_vote(const struct model* m, const char* folder, int rank) {
  char name[64];
  hf_at(m->step, HF_CHECKPOINT);
  if (!save(m, folder, rank)) {
    hf_vote_failed(m->step, strerror(errno));
    return;
  }
  name_of(name, m->step, rank);
  hf_vote_file(m->step, name); /* by name: with a digest, in the checkpoint's manifest */
  hf_vote(m->step, folder, 0, 0);
}

static void rest_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static int is_there(const char* folder, const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return access(path, F_OK) == 0;
}

int main(int argc, char** argv) {
  if (argc != 5 || !getenv("RANK")) {
    fprintf(stderr, "ranks FOLDER STEPS SAVE_EVERY STEP_MS, with RANK in the environment\n");
    return 2;
  }
  const char* folder = argv[1];
  const int64_t steps = atoll(argv[2]), every = atoll(argv[3]);
  const long step_ms = atol(argv[4]);
  const int rank = atoi(getenv("RANK"));
  struct model m = {0, (uint64_t)rank};

  hf_open();
  hf_at(-1, HF_RESTORING);
  const int64_t newest = hf_newest();
  if (newest >= 0 && !load(&m, folder, rank, newest)) {
    hf_failed(1, "the checkpoint that all ranks have voted for cannot be read");
    return 1;
  }
  hf_restored(m.step, newest >= 0 ? "shared" : "fresh");

  int leaves = 0;
  while (m.step < steps) {
    hf_at(m.step, HF_FORWARD);
    rest_ms(step_ms);
    m.value = m.value * 6364136223846793005u + 1442695040888963407u;
    ++m.step;
    hf_at(m.step, HF_OPTIMIZER);
    hf_metrics((double)(m.value >> 11) / 9007199254740992.0, m.step * 1000, 1e-3 * (double)step_ms);

    struct hf_order order;
    while (hf_orders(&order), order.pause) {
      hf_at(m.step, HF_PAUSED);
      rest_ms(100);
    }
    leaves = leaves || order.stop;
    if (m.step % every != 0) continue;
    save_and_vote(&m, folder, rank);
    if (leaves) return HF_EXIT_STOPPED;
    if (is_there(folder, "enough")) break;
  }
  hf_at(m.step, HF_FINISHING);
  printf("rank %d: step %" PRId64 ", %" PRIu64 "\n", rank, m.step, m.value);
  fflush(stdout);
  hf_finished(m.step);
  hf_close();
  return 0;
}
