/* A C program with MPI: least squares by gradient descent with momentum, in data parallel. A line that ends
 * in `// hf` protects it; without these lines, `grep -v '// hf$' fit.c >unprotected.c`, it is the program as
 * it was. However often it is interrupted, it ends in the bits of a run that was not: data are a function of
 * step and rank, and gradients are added in the order of ranks.
 *
 *   fit FOLDER STEPS SAVE_EVERY */
#include <dirent.h>
#include <fcntl.h>
#include <holdfast.h>  // hf
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 64, ROWS = 256 };

struct model {
  double weights[WIDTH], momentum[WIDTH];
};

static double random_number(uint64_t* state) {  // splitmix64; from -1 to 1
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1.0;
}

/* Adds the gradient of a batch to `gradient`, and returns its loss. */
static double gradient_of(const struct model* m, int64_t step, int rank, double gradient[WIDTH]) {
  uint64_t state = 1000003u * (uint64_t)step + (uint64_t)rank;
  double row[WIDTH], loss = 0;
  for (int i = 0; i < ROWS; ++i) {
    double error = 0.1 * random_number(&state);
    for (int k = 0; k < WIDTH; ++k) {
      row[k] = random_number(&state);
      error += row[k] * (m->weights[k] - k);
    }
    for (int k = 0; k < WIDTH; ++k) gradient[k] += error * row[k] / ROWS;
    loss += error * error / ROWS;
  }
  return loss;
}

static void file_of(char out[4096], const char* folder, int64_t step) {
  snprintf(out, 4096, "%s/step-%08" PRId64, folder, step);
}

static void need(int good, const char* path) {
  if (good) return;
  perror(path);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Complete and on disk, or not there. */
static void save(const struct model* m, const char* path) {
  char aside[4104];
  snprintf(aside, sizeof aside, "%s.new", path);
  const int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  need(fd >= 0 && write(fd, m, sizeof *m) == (ssize_t)sizeof *m && fsync(fd) == 0 && close(fd) == 0, aside);
  need(rename(aside, path) == 0, path);
}

static void load(struct model* m, const char* path) {
  const int fd = open(path, O_RDONLY);
  need(fd >= 0 && read(fd, m, sizeof *m) == (ssize_t)sizeof *m && close(fd) == 0, path);
}

static int64_t newest(const char* folder) {
  int64_t found = 0, step = 0;
  int end = 0;
  DIR* entries = opendir(folder);
  for (struct dirent* entry; entries && (entry = readdir(entries));)
    if (sscanf(entry->d_name, "step-%" SCNd64 "%n", &step, &end) == 1 && !entry->d_name[end] && step > found)
      found = step;
  if (entries) closedir(entries);
  return found;
}

// What rank 0 is told, for all; holds while that is the order. // hf
static struct hf_order orders(int64_t step) {                      // hf
  struct hf_order order;                                           // hf
  for (;;) {                                                       // hf
    hf_orders(&order);                                             // hf
    MPI_Bcast(&order, sizeof order, MPI_BYTE, 0, MPI_COMM_WORLD);  // hf
    if (order.save || !order.pause) return order;                  // hf
    hf_at(step, HF_PAUSED);                                        // hf
    nanosleep(&(struct timespec){0, 100000000}, NULL);             // hf
  }                                                                // hf
}  // hf

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  need(argc == 4, "fit FOLDER STEPS SAVE_EVERY");
  const char* folder = argv[1];
  const int64_t steps = atoll(argv[2]), every = atoll(argv[3]);
  int rank, world;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  double* all = malloc(sizeof(double) * WIDTH * (size_t)world);
  struct model m = {{0}, {0}};
  char path[4096];
  mkdir(folder, 0700);

  const int supervised = hf_open();  // hf
  int64_t step = newest(folder);
  if (supervised) step = hf_newest() > 0 ? hf_newest() : 0;  // hf
  file_of(path, folder, step);
  if (step > 0) load(&m, path);
  hf_restored(step, step > 0 ? "shared" : "fresh");  // hf

  double loss = 0;
  while (step < steps) {
    hf_at(step, HF_FORWARD);  // hf
    double gradient[WIDTH] = {0};
    loss = gradient_of(&m, step, rank, gradient);
    MPI_Allgather(gradient, WIDTH, MPI_DOUBLE, all, WIDTH, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int k = 0; k < WIDTH; ++k) {
      double sum = 0;
      for (int r = 0; r < world; ++r) sum += all[r * WIDTH + k];
      m.momentum[k] = 0.9 * m.momentum[k] + sum / world;
      m.weights[k] -= 0.01 * m.momentum[k];
    }
    ++step;
    int saves = step % every == 0 || step == steps;
    hf_at(step, HF_OPTIMIZER);                   // hf
    hf_metrics(loss, step * world * ROWS, 0);    // hf
    const struct hf_order order = orders(step);  // hf
    saves = saves || order.save || order.stop;   // hf
    if (saves) {
      hf_at(step, HF_CHECKPOINT);  // hf
      file_of(path, folder, step);
      if (rank == 0) save(&m, path);
      hf_vote(step, path, rank == 0, rank == 0 ? sizeof m : 0);  // hf
    }
    if (order.stop) break;  // hf
  }
  uint64_t digest = 0xcbf29ce484222325u;  // FNV-1a
  for (size_t i = 0; i < sizeof m; ++i) digest = (digest ^ ((const unsigned char*)&m)[i]) * 0x100000001b3u;
  if (rank == 0) printf("step %" PRId64 ": loss %g, digest %016" PRIx64 "\n", step, loss, digest);
  fflush(stdout);
  free(all);
  MPI_Finalize();
  if (step < steps) return HF_EXIT_STOPPED;  // hf
  hf_finished(step);                         // hf
  return 0;
}
