/* For scripts/bench/client.sh, not a test: nanoseconds of a call, the median of ROUNDS and the slowest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/holdfast.h"

enum { rounds = 11, calls = 2000000 };

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static int smaller(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void call_at(int i) { hf_at(i, i % 2 ? HF_FORWARD : HF_BACKWARD); }
static void call_metrics(int i) { hf_metrics(1.0 / (i + 1), i, 0.25); }
static void call_orders(int i) {
  struct hf_order order;
  if (hf_orders(&order)) exit(i % 2 + 3);
}

static void measure(const char* name, void (*call)(int), const char* end) {
  double each[rounds];
  for (int r = 0; r < rounds; ++r) {
    const double begin = now_ns();
    for (int i = 0; i < calls; ++i) call(i);
    each[r] = (now_ns() - begin) / calls;
  }
  qsort(each, rounds, sizeof *each, smaller);
  printf("\"%s\":{\"median_ns\":%.2f,\"slowest_round_ns\":%.2f}%s", name, each[rounds / 2], each[rounds - 1],
         end);
}

/* Seconds of sealing a buffer, and of copying as much, which the program does anyway. */
static int measure_seals(size_t bytes) {
  double seal[rounds], copy[rounds];
  char* from = malloc(bytes);
  if (!from) return 1;
  memset(from, 1, bytes);
  for (int r = 0; r < rounds; ++r) {
    void* to = hf_buffer("bench", bytes);
    if (!to) return 1;
    const double begin = now_ns();
    memcpy(to, from, bytes);
    const double copied = now_ns();
    if (!hf_seal(r)) return 1;
    copy[r] = copied - begin;
    seal[r] = now_ns() - copied;
  }
  qsort(seal, rounds, sizeof *seal, smaller);
  qsort(copy, rounds, sizeof *copy, smaller);
  printf("{\"agent\":true,\"bytes\":%zu,\"seal_s\":%.4f,\"copy_s\":%.4f}\n", bytes, 1e-9 * seal[rounds / 2],
         1e-9 * copy[rounds / 2]);
  return 0;
}

int main(int argc, char** argv) {
  const int supervised = hf_open();
  if (argc > 1) return measure_seals(strtoull(argv[1], NULL, 10));
  printf("{\"agent\":%s,", supervised ? "true" : "false");
  measure("hf_at", call_at, ",");
  measure("hf_metrics", call_metrics, ",");
  measure("hf_orders", call_orders, "}\n");
  return 0;
}
