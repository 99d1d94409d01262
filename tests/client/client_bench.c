/* For scripts/bench/client.sh, not a test: nanoseconds of a call, the median of ROUNDS and the slowest. */
#include <stdio.h>
#include <stdlib.h>
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

int main(void) {
  const int supervised = hf_open();
  printf("{\"agent\":%s,", supervised ? "true" : "false");
  measure("hf_at", call_at, ",");
  measure("hf_metrics", call_metrics, ",");
  measure("hf_orders", call_orders, "}\n");
  return 0;
}
